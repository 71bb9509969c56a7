"""Keys of transformers' Trainer and of Axolotl that send a result to the hub: push.to and push.private."""

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import OFF, Rule
from ftui.importers.values import flag, is_on, text
from ftui.profile.sections.around.push_target import HUB, parse_target

NO_OWNER = 'set push.to = "hub:OWNER/NAME": the file does not say whose it is'
NOT_ASKED = "push_to_hub is off"
OTHER_WAY = "ftui pushes once, when the run has finished: push.to says where"


def push_rules(*, by_name: bool) -> dict[str, Rule]:
    """Rules for a tool that pushes where `push_to_hub` is on; `by_name`: where `hub_model_id` is given."""

    def target(draft: ProfileDraft) -> str | None:
        name = draft.raw("hub_model_id") or draft.raw("push_to_hub_model_id")
        try:
            return HUB + parse_target(f"{HUB}{name}").value
        except ValueError:
            return None

    def is_asked(draft: ProfileDraft) -> bool:
        return by_name or is_on(draft.raw("push_to_hub"))

    def place(draft: ProfileDraft, leaf: Leaf) -> None:
        to = target(draft)
        if not is_asked(draft):
            draft.drop(leaf, NOT_ASKED)
        elif to is None:
            draft.drop(leaf, NO_OWNER)
        else:
            draft.carry(leaf, "push.to", to)

    def private(draft: ProfileDraft, leaf: Leaf) -> None:
        if is_asked(draft) and target(draft) is not None:
            draft.carry(leaf, "push.private", flag(leaf.value))
        else:
            draft.drop(leaf, NOT_ASKED)

    def push(draft: ProfileDraft, leaf: Leaf) -> None:
        place(draft, leaf) if flag(leaf.value) else draft.drop(leaf, OFF)

    def name(draft: ProfileDraft, leaf: Leaf) -> None:
        text(leaf.value)
        place(draft, leaf)

    return {"push_to_hub": push, "hub_model_id": name, "push_to_hub_model_id": name, "hub_private_repo": private}
