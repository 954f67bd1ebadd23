"""``edgeplace inspect``: what a model is made of, and what may not be separated and why."""

from __future__ import annotations

from edgeplace.cli import options, output


def inspect(
    model: options.ModelPath,
    signature: options.Signature = "",
    shape: options.Shapes = None,
    granularity: options.Granularity = "unit",
    json: options.Json = False,
) -> None:
    """Show operators, tensors, units, MACs, and what may not be separated and why."""
    from edgeplace import controller
    from edgeplace.report import tables

    facts = controller.inspect(model, signature=signature, shapes=shape or (), granularity=granularity)
    if json:
        output.print_json(facts)
    else:
        output.print_renderables(*tables.inspect_tables(facts))
