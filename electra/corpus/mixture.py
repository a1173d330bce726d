"""Mixing several streams of documents by weight."""

from collections.abc import Iterator, Sequence

from electra.corpus.document import Document


def interleave(streams: Sequence[Iterator[Document]], weights: Sequence[float]) -> Iterator[Document]:
    """Documents of all streams, so that the characters of any prefix stand in the ratio of the weights.

    The next document comes from the stream that is furthest behind its share (the first such, if several are), so
    no stream is ever ahead by more than one document. When a stream ends, the others go on without it.
    """
    running = dict(enumerate(streams))
    characters = [0] * len(streams)
    while running:
        behind = min(running, key=lambda i: characters[i] / weights[i])
        document = next(running[behind], None)
        if document is None:
            del running[behind]
            continue
        characters[behind] += len(document.text)
        yield document
