"""The commands: list · show · check · use · report · export · doctor · new. Thin: what they do stands elsewhere.

Nothing heavy is imported before a command needs it, so that ``assay list`` is quick.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay import __version__, catalog
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.evidence.run import Plan
    from assay.evidence.storage import Storage

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
    study = catalog.load_study(card)
    if json:
        _print_json(
            _card_data(card)
            | {
                "card": card.text,
                "tasks": [{"name": t.name, "what": t.what, "control": t.control} for t in study.tasks],
                "arms": [{"name": a.name, "role": a.role, "what": a.what} for a in study.arms],
                "claims": [claim.name for claim in study.claims],
                "accepts": dict(study.accepts),
                "contract": study.contract,
            }
        )
        return
    from rich.markdown import Markdown

    from assay.evidence.report.terminal import study_text, wide_console

    console = wide_console()
    console.print(Markdown(card.text))
    console.rule("study")
    console.print(study_text(study))


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
    placebo: Annotated[bool, typer.Option(help="Put each claim's opponent in the method's place.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Cells at once; all cores by default.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each cell.")] = 1,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that one cell may take; by default the budget's.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GiB that one cell may use; by default its share.")] = None,
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
    from assay.evidence.run import usable_cores
    from assay.evidence.storage import Storage

    brought = {kind: path for kind, path in (("data", data), ("model", model)) if path is not None}
    _require(limit is None or limit > 0, f"--limit must be positive, got {limit}")
    _require(memory is None or memory > 0, f"--memory must be positive, got {memory}")
    _require(jobs is None or jobs >= 1, f"--jobs must be at least 1, got {jobs}")
    _require(threads >= 1, f"--threads must be at least 1, got {threads}")
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
            tasks=task or (),
            arms=arm or (),
            placebo=placebo,
        )
        for card in [catalog.card(name) for name in dict.fromkeys(methods)]
    ]
    jobs = jobs if jobs is not None else usable_cores()
    if dry_run:
        with Storage(storage if _exists(storage) else "sqlite://") as records:
            _dry_run(plans, records, jobs)
        return
    with Storage(storage) as records:
        results = [
            check_plan(
                plan, records, jobs=jobs, threads=threads, seconds=limit,
                mib=memory * 1024 if memory is not None else None, fresh=fresh, retry=retry, quiet=json,
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
    command(context.args, prog_name=f"assay use {method}", standalone_mode=False)


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
    format: Annotated[str, typer.Option(help="csv, json or parquet.")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output by default.")] = None,
    study: Annotated[str | None, typer.Option(help="Only this method's records.")] = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write the records as a table: one row a cell."""
    from assay.evidence.export import write
    from assay.evidence.storage import Storage

    _require(_exists(storage), f"storage {storage}: there is no such file; `assay check` makes it")
    with Storage(storage) as stored:
        rows = stored.records(study=study) if study else stored.records()
        count = write(rows, format, out)
    if out is not None:
        print(f"{count} records written to {out}", file=sys.stderr)


def _exists(storage: str) -> bool:
    """Whether reading the storage would not first create it."""
    path = storage.removeprefix("sqlite:///")
    return "://" in path or Path(path).exists()


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
