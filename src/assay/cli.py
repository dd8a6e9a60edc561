"""The commands: list · show · check · use · report · export · compare · forget · card · doctor · new.

Thin: what they do stands elsewhere. Nothing heavy is imported before a command needs it, so that ``assay list`` is
quick.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay import __version__, catalog
from assay.errors import InputError, MissingPart

if TYPE_CHECKING:
    from assay.evidence.run import Plan
    from assay.evidence.storage import Storage
    from assay.evidence.study import Study

app = typer.Typer(
    name="assay",
    help="New machine-learning methods, usable in one call, with claims that run on your machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
INTERRUPTED = 130
DEFAULT_STORAGE = "sqlite:///assay.db"
StorageOption = Annotated[
    str, typer.Option("--storage", envvar="ASSAY_STORAGE", help="Database of records: sqlite:///FILE or postgresql://…")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def main() -> None:
    """Run the command line; a user's mistake becomes one line and exit code 2."""
    # Typer carries its own copy of click, or in older releases uses the installed one: ask Typer for the class.
    usage_error: Any = typer.BadParameter.__base__
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ✓ still gets the table
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        # Typer builds the parsers of all commands, which takes longer than to answer this.
        code = list_methods() if arguments == ["list"] else app(arguments, standalone_mode=False)
    except usage_error as error:
        command = error.ctx.command_path if error.ctx else "assay"
        _fail(f"{error.format_message()} (see {command} --help)")
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (ValueError, TypeError, KeyError, ImportError, OSError) as error:
        if debug:
            raise
        _fail(" ".join(str(error).split()) or type(error).__name__)
    if code == INTERRUPTED:  # Typer returns it, too
        print("assay: interrupted; finished cells are stored, the same command goes on from there", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(line: str) -> None:
    print(f"assay: {line}", file=sys.stderr)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        print(f"assay {__version__}")
        raise typer.Exit


@app.command("list")
def list_methods(json: JsonOption = False) -> None:
    """List the methods."""
    found = catalog.cards()
    if json:
        _print_json([_card_data(card) for card in found.values()])
    else:
        width = max((len(name) for name in found), default=0)
        field = ""
        for card in sorted(found.values(), key=lambda c: (c.field, c.name)):
            if card.field != field:
                field = card.field
                print(f"{field}:")
            print(f"  {card.name:<{width}}  {card.summary}")
        print(f"{len(found)} method{'s' if len(found) != 1 else ''}; more about one: assay show METHOD")
    for name, reason in catalog.broken().items():
        print(f"assay: the plug-in {name!r} is left out: {reason}", file=sys.stderr)


@app.command()
def show(method: str, json: JsonOption = False) -> None:
    """Show a method's card and its study: tasks, arms, claims, and what of yours it accepts."""
    card = catalog.card(method)
    study, missing = None, ""
    try:
        study = catalog.load_study(card)
    except MissingPart as error:  # the card tells whether installing it is worth while
        missing = str(error)
    if json:
        told: dict[str, Any] = {"missing": missing}
        if study is not None:
            told = {
                "tasks": [{"name": t.name, "what": t.what, "control": t.control} for t in study.tasks],
                "arms": [{"name": a.name, "role": a.role, "what": a.what} for a in study.arms],
                "claims": [claim.name for claim in study.claims],
                "accepts": dict(study.accepts),
                "contract": study.contract,
            }
        _print_json(_card_data(card) | {"card": card.text} | told)
        return
    from rich.markdown import Markdown

    from assay.evidence.report.terminal import study_text, wide_console

    console = wide_console()
    console.print(Markdown(card.text))
    console.rule("study")
    console.print(study_text(study) if study is not None else f"Not shown: {missing}", markup=False)


@app.command()
def check(
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...")],
    budget: Annotated[str, typer.Option(help="smoke, quick, full or paper.")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; continues what is stored.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task (repeatable).")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm (repeatable).")] = None,
    data: Annotated[Path | None, typer.Option(help="Your data in place of the study's.")] = None,
    model: Annotated[Path | None, typer.Option(help="Your model in place of the study's.")] = None,
    own: Annotated[list[str] | None, typer.Option("--with", help="Your solution: NAME=module:function.")] = None,
    endpoint: Annotated[
        str, typer.Option(help="Address of an OpenAI-compatible endpoint, for the arms that ask a language model.")
    ] = "",
    llm: Annotated[str, typer.Option(help="The model's name there.")] = "",
    key_env: Annotated[str | None, typer.Option(help="The environment variable that holds the endpoint's key.")] = None,
    placebo: Annotated[bool, typer.Option(help="Put each claim's opponent in the method's place.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Cells at once; all cores by default.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each cell.")] = 1,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that one cell may take; by default the budget's.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GiB that one cell may use; by default its share.")] = None,
    engine: Annotated[str, typer.Option(help="Where cells run: local, dask or ray.")] = "local",
    address: Annotated[str, typer.Option(help="Address of the Dask scheduler or the Ray cluster.")] = "",
    share_gpu: Annotated[bool, typer.Option("--share-gpu", help="Let cells share a GPU.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
    fresh: Annotated[bool, typer.Option(help="Run again what is stored.")] = False,
    retry: Annotated[bool, typer.Option(help="Run again what failed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the cells and an estimate of time.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if a claim is not supported.")] = False,
    json: JsonOption = False,
) -> None:
    """Run a method's study and judge its claims, on its own tasks or on yours."""
    from assay.evidence import own as own_part
    from assay.evidence.check import check_plan, prepare
    from assay.evidence.engine import connect
    from assay.evidence.run import usable_cores
    from assay.evidence.storage import Storage
    from assay.parts.chat import Chat

    brought = {kind: path for kind, path in (("data", data), ("model", model)) if path is not None}
    _require(limit is None or limit > 0, f"--limit must be positive, got {limit}")
    _require(memory is None or memory > 0, f"--memory must be positive, got {memory}")
    _require(jobs is None or jobs >= 1, f"--jobs must be at least 1, got {jobs}")
    _require(threads >= 1, f"--threads must be at least 1, got {threads}")
    _require(bool(endpoint) == bool(llm), "--endpoint URL and --llm NAME belong together")
    _require(key_env is None or bool(endpoint), "--key-env is for --endpoint")
    chat = Chat(endpoint, llm, key_env=key_env) if endpoint else None
    arms = [own_part.user_arm(text, Path.cwd()) for text in own or ()]
    plans = [
        prepare(
            catalog.load_study(card),
            card_module=card.module,
            extras=(*card.extras, *card.study_extras),
            budget=budget,
            seeds=seeds,
            brought=brought,
            own_arms=arms,
            chat=chat,
            tasks=task or (),
            arms=arm or (),
            placebo=placebo,
        )
        for card in [catalog.card(name) for name in dict.fromkeys(methods)]
    ]
    if dry_run:
        with Storage(storage if _exists(storage) else "sqlite://") as records:
            _dry_run(plans, records, jobs or usable_cores())
        return
    with Storage(storage) as records, connect(engine, address) as workers:
        results = [
            check_plan(
                plan, records, jobs=jobs or workers.cores or usable_cores(), threads=threads, seconds=limit,
                mib=memory * 1024 if memory is not None else None, fresh=fresh, retry=retry, share_gpu=share_gpu,
                engine=workers, quiet=json,
            )
            for plan in plans
        ]  # fmt: skip
    if json:
        _print_json([result.data() for result in results])
    if strict and any(result.not_supported for result in results):
        raise typer.Exit(1)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)


def _dry_run(plans: list[Plan], records: Storage, jobs: int) -> None:
    from assay.evidence.run import estimate_seconds

    for plan in plans:
        for cell in plan.cells:
            print(f"{cell.study}  {cell.task}  {cell.arm}  seed {cell.seed}")
        todo, estimate = estimate_seconds(plan, records, jobs)
        about = (
            "no time is known yet: nothing of this budget is stored" if estimate is None else f"about {estimate:.0f} s"
        )
        print(f"{plan.study.name}: {len(plan.cells)} cells, {todo} to run at {jobs} jobs: {about}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def use(context: typer.Context, method: Annotated[str, typer.Argument()] = "") -> None:
    """Run a method on your files: assay use METHOD …; assay use METHOD --help says how."""
    if method in ("", "--help", "-h"):
        able = [card.name for card in catalog.cards().values() if card.has_use]
        print("usage: assay use METHOD …   (assay use METHOD --help says how)\nmethods: " + ", ".join(able))
        return
    command = catalog.load_use(catalog.card(method))
    code = command(context.args, prog_name=f"assay use {method}", standalone_mode=False)
    if code:  # a command that ends with typer.Exit(code) returns it here
        raise typer.Exit(code)


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for index.html, which needs nothing else.")],
    study: Annotated[str | None, typer.Option(help="Only this method's checks.")] = None,
    budget: Annotated[str | None, typer.Option(help="Only checks at this budget.")] = None,
    show_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write what the stored checks say as one page: claims, intervals, every seed, costs, failures."""
    from assay.evidence.report.page import write_report
    from assay.evidence.storage import Storage

    _require(_exists(storage), f"storage {storage}: there is no such file; `assay check` makes it")
    with Storage(storage) as stored:
        path = write_report(stored, out, catalog.cards(), study=study, budget=budget)
    print(path)
    if show_it:
        import webbrowser

        webbrowser.open(path.absolute().as_uri())


@app.command()
def export(
    format: Annotated[str, typer.Option(help="csv, json, parquet or mlflow.")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output by default.")] = None,
    uri: Annotated[
        str | None, typer.Option(help="For mlflow: sqlite:///mlflow.db or a server; $MLFLOW_TRACKING_URI by default.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Only this method's records.")] = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write the records as a table, one row a cell, or as runs of MLflow."""
    from assay.evidence.export import write
    from assay.evidence.storage import Storage

    _require(_exists(storage), f"storage {storage}: there is no such file; `assay check` makes it")
    to_mlflow = format == "mlflow"
    uri = uri or (os.environ.get("MLFLOW_TRACKING_URI") if to_mlflow else None)
    _require(to_mlflow == bool(uri), "--uri is for --format mlflow, which needs it: e.g. --uri sqlite:///mlflow.db")
    _require(not to_mlflow or out is None, "--format mlflow writes to --uri, not to --out")
    with Storage(storage) as stored:
        rows = stored.records(study=study) if study else stored.records()
        if uri:
            from assay.evidence.mlflow_runs import write_runs

            _require(_file(uri) != _file(storage), f"--uri {uri} is the storage itself; name another database")
            print(write_runs(rows, uri), file=sys.stderr)
            return
        count = write(rows, format, out)
    if out is not None:
        print(f"{count} records written to {out}", file=sys.stderr)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A storage: a file or a URL.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="The other; A again by default.")] = None,
    a_only: Annotated[
        list[str] | None, typer.Option("--a", metavar="FIELD=VALUE", help="Of A only these, e.g. numpy=2.3.5.")
    ] = None,
    b_only: Annotated[
        list[str] | None, typer.Option("--b", metavar="FIELD=VALUE", help="Of B only these, e.g. numpy=2.4.6.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Only this method's records.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a metric differs or a cell fails on one side.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare two storages, or two parts of one: differences over common seeds with 95 % intervals.

    FIELD is a package whose version the records hold, machine (part of its words), budget, since or until (a day or
    time): the last two tell code before a change from code after it.
    """
    from assay.evidence.compare import compare as compared_with
    from assay.evidence.compare import select
    from assay.evidence.storage import Storage

    _require(b is not None or bool(a_only or b_only), "compare A with what? give B, or parts of A by --a and --b")
    sides, names = [], []
    for url, only in ((a, a_only or []), (b or a, b_only or [])):
        _require(_exists(url), f"storage {url}: there is no such file; `assay check` makes it")
        with Storage(url) as stored:
            records = select(stored.records(study=study) if study else stored.records(), only)
            sides.append(records)
            part = f" ({', '.join(only)})" if only else ""
            names.append(f"{stored.url}{part}, {len(records)} records")
    result = compared_with(*sides)
    if json:
        _print_json({"a": names[0], "b": names[1], **result.data()})
    else:
        from assay.evidence.report.comparison import comparison
        from assay.evidence.report.terminal import wide_console

        wide_console().print(comparison(result, *names))
    if strict and result.differs:
        raise typer.Exit(1)


@app.command()
def forget(
    study: Annotated[str | None, typer.Option(help="Records of this method.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Records of this arm (repeatable).")] = None,
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Older than that: 30d, 12h, 2w.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Those without a result.")] = False,
    stale: Annotated[bool, typer.Option("--stale", help="Those that the method's present code did not make.")] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Not records but the cache of shared work; goes with --older-than.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Delete the stored records that fit all that is asked for, and the checks of which none is left."""
    from assay.evidence import forget as choosing
    from assay.evidence.storage import Storage

    age = choosing.age(older_than) if older_than is not None else None
    if shared:
        alone = study is None and not arm and not failed and not stale
        _require(alone, "--shared is about the cache alone: of the other choices it takes --older-than only")
        _forget_shared(age.total_seconds() if age else 0.0, yes, dry_run)
        return
    some = study is not None or arm or age is not None or failed or stale
    _require(bool(some), "forget what? give --study, --arm, --older-than, --failed, --stale or --shared")
    _require(_exists(storage), f"storage {storage}: there is no such file")
    with Storage(storage) as stored:
        choice = choosing.choose(
            stored.records(), study=study, arms=arm or (), older_than=age, failed=failed,
            stale=_present if stale else None,
        )  # fmt: skip
        what = choosing.summary(choice)
        if dry_run or not choice.records:
            print(f"would go: {what}" if choice.records else what)
            return
        _confirm(what, yes)
        records, checks = stored.delete(choice.records)
    held = len(choice.records) - records
    print(
        f"{records} record{'s' if records != 1 else ''} deleted"
        + (f", and {checks} check{'s' if checks != 1 else ''} of which none is left" if checks else "")
        + (f"; {held} stayed, which a run works on or wrote anew" if held else "")
    )


def _forget_shared(older_than: float, yes: bool, dry_run: bool) -> None:
    from assay.evidence.shared import free

    found = free(older_than, dry_run=True)
    if found.pieces and not dry_run:
        _confirm(str(found), yes)
        found = free(older_than)
    print(f"{'would go' if dry_run else 'freed'}: {found}")


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    _require(sys.stdin.isatty(), f"this would delete {what}; say so with --yes")
    print(f"to delete: {what}")
    if not typer.confirm("Delete them?"):
        print("nothing was deleted")
        raise typer.Exit(1)


def _present(study: str) -> tuple[Study, str] | None:
    """The study and the fingerprint of its code as they are now; ``None`` where it is not installed."""
    from assay.evidence.fingerprint import code_fingerprint

    try:
        card = catalog.card(study)
        return catalog.load_study(card), code_fingerprint(f"{card.module}.study")
    except (InputError, ImportError, SyntaxError):
        return None


def _exists(storage: str) -> bool:
    """Whether reading the storage would not first create it."""
    path = storage.removeprefix("sqlite:///")
    return "://" in path or Path(path).exists()


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///")).resolve()


@app.command("card")
def card_(
    method: str,
    update: Annotated[bool, typer.Option("--update", help="Write it into the card instead of printing it.")] = False,
    budget: Annotated[str, typer.Option(help="The budget of the check.")] = "quick",
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Print the measured part of a method's card from the stored check, or put it into the card."""
    from assay.evidence.check import prepare
    from assay.evidence.report.markdown import measured, update_card
    from assay.evidence.storage import Storage

    found = catalog.card(method)
    extras = (*found.extras, *found.study_extras)
    plan = prepare(catalog.load_study(found), card_module=found.module, extras=extras, budget=budget)
    _require(_exists(storage), f"storage {storage}: there is no such file; `assay check` makes it")
    with Storage(storage) as stored:
        text = measured(stored, plan)
    if update:
        update_card(found.path, text)
        print(found.path)
    else:
        print(text, end="")


@app.command()
def doctor(method: Annotated[str, typer.Argument()] = "", json: JsonOption = False) -> None:
    """Say what is there, and the exact line that installs what is not."""
    from assay.doctor import examine, print_findings

    findings = examine(catalog.card(method) if method else None)
    if json:
        _print_json(findings)
    else:
        print_findings(findings)


@app.command()
def new(field: str, name: str) -> None:
    """Write the furniture of a new method's room: card, code, study and tests (in a checkout of assay)."""
    from assay.furniture import furnish

    for path in furnish(Path.cwd(), field, name):
        print(path)


def _card_data(card: catalog.Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "title": card.title,
        "field": card.field,
        "summary": card.summary,
        "source": card.source,
        "module": card.module,
        "extras": list(card.extras),
        "study_extras": list(card.study_extras),
        "use": card.has_use,
    }


def _print_json(data: object) -> None:
    import json
    import math

    def plain(value: Any) -> Any:  # JSON knows no NaN
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    print(json.dumps(plain(data), indent=2, ensure_ascii=False))
