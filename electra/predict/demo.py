"""A local page to try a model: P(replaced) of each token, the generator's proposals, and fine-tuned predictions.

Each request returns one page: forms and links without scripts, an inline style sheet, and no external resources. The
server listens on loopback only, accepts only Host headers that name loopback (which blocks DNS rebinding: foreign names
that resolve to 127.0.0.1), and limits requests to ``MAX_BODY`` bytes.
"""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import torch
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, ElectraError, InfrastructureError
from electra.common.paths import Paths
from electra.finetune.kinds import FINETUNING
from electra.finetune.saved import SavedModel, load_model
from electra.hub.importing.huggingface import import_huggingface
from electra.predict.run import predict_records, value_of
from electra.results.probe.learned import Piece, fills, masked_probabilities, pieces_of, replaced
from electra.results.probe.scores import Probe
from electra.results.report.tables import page_template
from electra.tasks.format import Row

HOST, PORT = "127.0.0.1", 8765
MAX_BODY = 64 << 10  # bytes of a request
MAX_TEXT = 4_000  # characters of a text
PROPOSALS = 8
EXAMPLE = "The robin sang in the garden, and the cat [MASK] under the table."
TEMPLATE = Path(__file__).with_name("demo.html.j2")
HEADED = ("ElectraForPreTraining", "ModernBertForTokenClassification")  # classes that include the discriminator's head
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass
class Demo:
    """Models behind the page.

    Attributes:
        name: name of the model, shown on the page.
        has_head, has_generator: whether the model folder has them; randomly initialised parts are not shown.
        finetuned: folders of fine-tuned models; each is loaded on first use.
    """

    name: str
    probe: Probe
    finetuned: dict[str, Path]
    device: torch.device
    bf16: bool
    has_head: bool = True
    has_generator: bool = True
    _loaded: dict[str, SavedModel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, text: str, second: str = "", chosen: int | None = None, asked: list[str] | None = None) -> str:
        """Return the page for a text.

        Args:
            second: second text of a pair; context of a question; endings of a choice, one per line.
            chosen: index of the wordpiece to propose alternatives for; all ``[MASK]`` if None.
            asked: names of the fine-tuned models to run.
        """
        with self._lock:
            pieces = pieces_of(self.probe, text)
            places = [place for place, piece in enumerate(pieces) if piece.is_mask]
            if chosen is not None and 0 <= chosen < len(pieces):
                places = [chosen]
            ids = [piece.id for piece in pieces]
            scores = replaced(self.probe, ids) if ids and self.has_head else None
            found = (
                fills(self.probe, masked_probabilities(self.probe, ids, places), PROPOSALS)
                if self.has_generator
                else []
            )
            answers = {name: self._answer(name, text, second) for name in asked or [] if name in self.finetuned}
        return page_template(TEMPLATE).render(
            name=self.name,
            text=text,
            second=second,
            pieces=[_shown(piece, scores[n] if scores else None) for n, piece in enumerate(pieces)],
            is_cut="".join(p.before + p.text for p in pieces).rstrip() != text.rstrip(),
            has_scores=scores is not None,
            proposals=[
                (pieces[place].text, [(self.probe.label(name), share) for name, share in options])
                for place, options in zip(places, found, strict=False)
            ],
            chosen=chosen,
            has_generator=self.has_generator and self.probe.objective.language_model() is not None,
            finetuned=list(self.finetuned),
            answers=answers,
            max_text=MAX_TEXT,
        )

    def _answer(self, name: str, text: str, second: str) -> dict[str, Any]:
        """Return a fine-tuned model's prediction for the text as names and values, or ``error``."""
        try:
            if name not in self._loaded:
                self._loaded[name] = load_model(self.finetuned[name])
                self._loaded[name].model.to(self.device)
            saved = self._loaded[name]
            row = row_of(saved, text, second)
            (record,) = predict_records(saved, [row], 1, self.bf16)
        except ElectraError as error:
            return {"error": error.what}
        return {key: value for key, value in record.items() if key != "id"}


def _shown(piece: Piece, score: float | None) -> dict[str, Any]:
    return {"text": piece.text, "before": piece.before, "score": None if piece.is_mask else score}


def row_of(saved: SavedModel, text: str, second: str) -> Row:
    """Return a row of the model's task from the two texts of the page.

    Raises:
        ConfigError: the task needs other texts.
    """
    kind, spec = FINETUNING[saved.spec.kind], saved.spec
    fields, texts = kind.fields(spec), kind.demo_inputs(spec, text, second)
    if len(texts) != len(fields) or not all(one.strip() for one in texts):
        raise ConfigError(f"{spec.name} takes {kind.demo_help(spec)}")
    return {"id": 1, **{name: value_of(kind, one) for name, one in zip(fields, texts, strict=True)}}


def application(demo: Demo) -> Starlette:
    """Return the page as an ASGI application."""

    async def page(request: Request) -> Response:
        body = b""
        if request.method == "POST":
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    return PlainTextResponse(f"more than {MAX_BODY:,} bytes", 413, HEADERS | {"Connection": "close"})
        try:
            sent = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100, errors="strict")
        except ValueError:
            return PlainTextResponse("the request is not a form in UTF-8", 400, HEADERS)
        text, second = (sent.get(name, [""])[0].replace("\r\n", "\n")[:MAX_TEXT] for name in ("text", "second"))
        text = text if request.method == "POST" else EXAMPLE
        chosen = sent.get("token", [""])[0]
        number = int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 6 else None
        html = await run_in_threadpool(demo.answer, text, second, number, sent.get("model", []))
        return HTMLResponse(html, headers=HEADERS)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)
    return Starlette(routes=[Route("/", page, methods=["GET", "POST"])], middleware=[hosts])


def load_demo(paths: Paths, folder: Path | None, device: torch.device, bf16: bool, scratch: Path) -> Demo:
    """Load the models to show.

    Args:
        folder: a folder that ``electra export`` wrote, one of its subfolders, or a published model; the workspace's
            weights if None.
        scratch: an empty folder for imported weights.

    Raises:
        ConfigError: the folder holds no model that can be shown.
        DataError: weights are missing or damaged.
    """
    models = [folder.parent.glob("*/model.safetensors") for folder in (paths.finetuned("x"), paths.kept("x"))]
    finetuned = {path.parent.name: path.parent for found in models for path in sorted(found)}
    if folder is None:
        return Demo("models/pretrained", Probe(paths, device, bf16), finetuned, device, bf16)
    main, generator = _halves(folder)
    imported = Paths(scratch)
    classes = read_json(main / "config.json").get("architectures") or () if (main / "config.json").is_file() else ()
    is_language_model = any(name.endswith("ForMaskedLM") for name in classes)
    import_huggingface(main, generator, imported.pretrained.absolute(), as_language_model=is_language_model)
    imported.tokenizer.parent.mkdir(parents=True)
    imported.tokenizer.symlink_to((imported.pretrained / "tokenizer").absolute())
    probe, has_head = Probe(imported, device, bf16), bool(set(classes) & set(HEADED))
    has_generator = is_language_model or generator is not None
    return Demo(str(folder), probe, finetuned, device, bf16, has_head, has_generator)


def _halves(folder: Path) -> tuple[Path, Path | None]:
    """Return the folders of the main encoder (with its head, if there is one) and of the generator."""
    names = ("encoder", "detector", "discriminator", "generator")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", next_step="name a folder that electra export wrote")
    whole = folder.parent if folder.name in names else folder  # the folder that contains both
    halves = [whole / name for name in names if (whole / name / "config.json").is_file()]
    if not halves:
        return folder, None
    generator = whole / "generator"
    return halves[0], generator if generator in halves[1:] else None


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Yield a socket bound to a port on loopback.

    Raises:
        InfrastructureError: the port is taken.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise InfrastructureError(
                f"port {port} of {HOST} cannot be used: {error.strerror}", next_step="name another one: --port"
            ) from None
        yield listener


def serve(demo: Demo, listener: socket.socket) -> None:
    """Serve the page on loopback until interrupted."""
    import uvicorn

    print(f"demo: http://{HOST}:{listener.getsockname()[1]}/ shows {demo.name}; Ctrl-C ends it", flush=True)
    config = uvicorn.Config(application(demo), log_level="warning", access_log=False, server_header=False)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def run_demo(paths: Paths, folder: Path | None, port: int, device: torch.device, bf16: bool) -> None:
    """Load the models and serve the page; see :func:`load_demo`.

    Raises:
        InfrastructureError: the port is taken; this is checked before models are loaded.
    """
    with listening(port) as listener, tempfile.TemporaryDirectory() as scratch:
        serve(load_demo(paths, folder, device, bf16, Path(scratch)), listener)
