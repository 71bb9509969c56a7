"""README.md of a merged model: measured facts, with YAML in front for the hub."""

from ftui.helper.merge_facts import Certificate, agreement_rows

from .merged_model import MergedModel


def readme(certificate: Certificate, model: MergedModel) -> str:
    """What was merged into what, and how the result agrees with it."""
    into = {"dequantised": ", its weights as they are once quantised", "original": ", its weights as in its files"}
    base = f"`{certificate.base}`{into.get(certificate.into or '', '')}"
    rows = [
        ("merged", f"{certificate.source} of {certificate.run}"),
        ("into", base),
        ("stored in", certificate.dtype),
        ("weights", f"{model.num_changed} merged, {model.num_tensors - model.num_changed} as in the base"),
        *([("embeddings and head", "untied: the merge has made them differ")] if model.is_untied else []),
        *agreement_rows(certificate.agreement),
    ]
    if certificate.into_dequantised is not None:
        rows += [
            (f"{name}, into the dequantised base", value)
            for name, value in agreement_rows(certificate.into_dequantised)
        ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    text = (
        f"Compared with base and adapter on {certificate.agreement.num_rows} {certificate.rows}, both computed in "
        "float32; `certificate.json` has all figures."
    )
    head = f"---\nlibrary_name: transformers\n---\n\n# {certificate.run}\n\nMerged with ftui.\n"
    return f"{head}\n| | |\n|---|---|\n{table}\n\n{text}\n"
