"""Marks of activation checkpoints in graphs: programs need none."""


class CheckpointTagger:
    """`torch.utils.checkpoint` makes the recomputation part of the graph."""

    @staticmethod
    def tag(*args: object, **kwargs: object) -> None:
        """Nothing to mark."""
