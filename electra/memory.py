"""Memory that ran out: what it looks like, and what to lower."""

from electra.errors import InfrastructureError

LOWER = {
    "corpus": "corpus.max_chars, or cluster.num_workers; and see that `documents` of the source separates documents",
    "tokenizer": "tokenizer.max_training_chars, or cluster.num_workers",
    "shards": "corpus.max_chars, or cluster.num_workers",
    "pretrain": "cluster.micro_batch_size (the result stays the same), or raise cluster.zero_stage",
    "finetune": "finetune.batch_size, or finetune.max_length and finetune.span_max_length",
}


def out_of_memory(error: BaseException, command: str) -> InfrastructureError | None:
    """The error to show for one that means that memory ran out, or None for any other error.

    Args:
        error: what a command ended with.
        command: its name, such as ``pretrain``.
    """
    if not is_out_of_memory(error):
        return None
    lower = LOWER.get(command)
    return InfrastructureError(
        f"memory ran out: {error or 'none was left'}".splitlines()[0],
        where=f"electra {command}",
        next_step=(f"lower {lower}; or use" if lower else "use") + " a machine with more memory, and run it again",
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy, Arrow or torch (on CPU or GPU) could not allocate.

    Torch's CPU allocator raises a plain RuntimeError; its GPU error is told by name, to do without importing torch.
    """
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "ArrowMemoryError"):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
