"""All that needs no weights: rows (reading.py) and plan. A dry run ends here; a wrong profile fails here at once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ftui.profile.checks.warnings import find_warnings
from ftui.profile.schema import Profile

from ..data.load_rows import DataSplit, load_data
from ..data.tokens.encode import Encoder
from ..inspection.report import make_report
from ..inspection.report.findings import refuse_red_findings, warnings
from ..models.files.fingerprints import source_of
from ..optim.schedule import learning_rate_curve
from ..planning.curriculum_plan import Course
from ..planning.mixing import planned, shares_in, shortfall
from ..planning.plan import Plan, Share


@dataclass(frozen=True)
class Prepared:
    """`folder` and `commit` are those of the base model, `adapter` is the one to go on from (`None` for new ones).

    `new_token_ids` are entries of the tokenizer that the profile has added: the base has never seen them.
    """

    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    commit: str | None
    encoder: Encoder
    train: DataSplit
    evaluation: DataSplit | None
    plan: Plan | Course
    shares: tuple[Share, ...]
    warnings: tuple[str, ...]
    adapter: Path | None = None
    new_token_ids: tuple[int, ...] = ()

    @property
    def epoch_tokens(self) -> int:
        """Tokens of the first epoch (of a curriculum, of a mean one): a source comes as often as its weight says."""
        return self.plan.an_epoch(self.train.sequences.lengths[self.train.indices])

    @property
    def epoch_target_tokens(self) -> int:
        """The same of those that are learned."""
        return self.plan.an_epoch(self.train.sequences.num_targets[self.train.indices])

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end a turn."""
        ids = self.tokenizer.convert_tokens_to_ids(sorted(self.encoder.stops))
        assert isinstance(ids, list)
        return ids


def prepare(profile: Profile, cache: Path, report: Callable[[str], None]) -> Prepared:
    """Fetch the model's files, read and tokenise the rows, make the plan. `report(detail)` tells how far it is.

    Raises:
        ModelError, DataError: see the rooms that do the work; also when something is wrong with the rows (findings.py).
    """
    its = load_data(profile, cache, report)
    report("looking for what is wrong with the rows")
    found = make_report(its, profile)
    refuse_red_findings(found)
    data, train = its.train.sequences, its.train
    shares = shares_in(its.found, train, profile.data.mixing_temperature)
    plan = planned(profile, data.lengths[train.indices], data.num_targets[train.indices], shares)
    learning_rate_curve(profile.train, plan.max_steps)  # one that is longer than the run is refused now
    warned = (
        *its.warnings, *warnings(found), *shortfall(profile, plan), *_losses(its.folder),
        *find_warnings(profile, plan.max_steps),
    )  # fmt: skip
    return Prepared(
        its.tokenizer, its.folder, its.commit, its.encoder, train, its.evaluation, plan, shares, warned, its.adapter,
        its.new_token_ids,
    )  # fmt: skip


def _losses(folder: Path | None) -> list[str]:
    """What was lost when the base model's folder was made from a file of another form."""
    source = None if folder is None else source_of(folder)
    return [] if source is None else source.notes
