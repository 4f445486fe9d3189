"""Is the result better? The scores of a result and of its base, or of an earlier result, on the same rows."""

import contextlib
import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from tui_train.actions.host_result import host_of_result, require_path_on_host, result_folder_candidates
from tui_train.actions.merge import require_language_model
from tui_train.actions.result_child import ResultChild, require_modules, training_python, weights_folder_request
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import raising_cannot_write, write_atomically
from tui_train.base.parse import Unparsable, parse_json_object
from tui_train.base.text import grouped_digits, quantity, visible
from tui_train.facts.answer_cache import FileState, file_state
from tui_train.places import place_of_run
from tui_train.profile.rewards import chosen_rewards
from tui_train.profile.types import Profile
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.results.result import read_result
from tui_train.runs.results.weights import Weights
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.trainers import trainer_has_own_field

Verdict = Literal["better", "worse", "no difference"]
DEFAULT_ROW_COUNT = 200
EVALUATIONS_FOLDER = "evaluations"
_LENGTH_ARGUMENT = "--max_length="  # of TRL
_HELD_OUT_FILE, _TRAINING_ROWS_FILE = "data/test.jsonl", "data/train.jsonl"  # in a run's folder
_MAX_SILENCE_SECONDS = 1800.0  # loading reads many GB, and a long answer takes a CPU minutes
_EQUAL_RELATIVE_TOLERANCE = 1e-4  # scores that differ by less are equal: two dtypes or devices round otherwise


class EvaluationOptions(Struct, frozen=True, kw_only=True):
    """Rows, and how they are scored.

    `by` is `loss`, `exact`, `regex:PATTERN` or `function:FILE.py:NAME` (also a reward); `data` are files instead of the
    held-out rows; `earlier` is the run whose result it is compared with, None for the base model. With `tasks` of
    lm-eval (names, YAML files or folders of them) its documents are scored in place of rows, and `by` is one of their
    metrics (`loss`: of each task its first); `chat_template` puts their prompts through that.
    """

    by: str = "loss"
    data: tuple[str, ...] = ()
    row_count: int = DEFAULT_ROW_COUNT
    max_answer_tokens: int = 256
    earlier: RunFolder | None = None
    python: str = ""
    trusts_model_code: bool = False
    host: str = ""
    tasks: tuple[str, ...] = ()
    chat_template: bool = False


class NoHeldOutRows(NotFound):
    """A run kept no rows for evaluations, and no file with others is named."""


class SideScore(Struct, frozen=True):
    """Score of a row, numbered from 0, by one side (`result`, `other`, or the step of a checkpoint); higher is better.

    It is a summed log-probability of `tokens`, or the grade of an `answer`. The result's has the row's texts as well.
    `group` is the task of lm-eval and its metric; of a preference `pair` it is by how much the chosen answer is the
    likelier. `odd` says why a row has no score.
    """

    side: str
    number: int
    score: float
    tokens: int = 0
    answer: str = ""
    prompt: str = ""
    expected: str = ""
    group: str = ""
    pair: bool = False
    odd: str = ""


class RowScores(Struct, frozen=True):
    """Scores of one row by both sides."""

    result: SideScore
    other: SideScore


class TaskMetric(Struct, frozen=True):
    """A figure of lm-eval over all documents of a task, for both sides."""

    name: str
    result: float
    other: float


class Evaluation(Struct, frozen=True, kw_only=True):
    """All scores of an evaluation, `usable_rows` of the data, and what the other side is called."""

    by: str
    other_name: str
    rows: tuple[RowScores, ...]
    usable_rows: int
    note: str = ""
    """What is to be known of the comparison, empty for nothing."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-eval whose documents are the rows."""
    figures: tuple[TaskMetric, ...] = ()
    """What lm-eval reports of those."""
    weights: str = ""
    """The folder of the result, empty where it is not known."""
    comparisons: int = 1
    """How many are made at once: the interval holds for all of them (Bonferroni)."""

    @property
    def better_share(self) -> float:
        """Share of the rows that tell the sides apart on which the result is better; one half where none does."""
        return sum(self._wins_of_unequal_rows) / len(self._wins_of_unequal_rows) if self._wins_of_unequal_rows else 0.5

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """Interval of 95 % of that share, by Wilson's formula with a correction for continuity."""
        count, better = len(self._wins_of_unequal_rows), sum(self._wins_of_unequal_rows)
        quantile = NormalDist().inv_cdf(1 - 0.025 / self.comparisons)
        return _better_share_lower_bound(better, count, quantile), 1 - _better_share_lower_bound(
            count - better, count, quantile
        )

    @property
    def equal_row_count(self) -> int:
        """Number of rows on which both sides are equal: as in a sign test, they say nothing of which is better."""
        return len(self.rows) - len(self._wins_of_unequal_rows)

    @property
    def _wins_of_unequal_rows(self) -> list[bool]:
        return [win for win in map(_is_better_or_none_if_equal, self.rows) if win is not None]

    @property
    def verdict(self) -> Verdict:
        """Verdict: a difference where the whole interval lies on one side of one half."""
        low, high = self.confidence_interval
        return "better" if low > 0.5 else "worse" if high < 0.5 else "no difference"

    @property
    def mean_scores(self) -> tuple[float, float]:
        """Mean of both sides: the loss per token of the result, the lead of chosen answers, or the grade per row."""
        totals = sum(row.result.score for row in self.rows), sum(row.other.score for row in self.rows)
        # A loss is of the same tokens for both: another tokenizer would share it among more or fewer.
        count = sum(-row.result.tokens for row in self.rows) if self.is_by_loss else len(self.rows)
        return totals[0] / (count or 1), totals[1] / (count or 1)

    @property
    def is_by_loss(self) -> bool:
        """True where the mean is a loss, of which lower is better."""
        return self.by == "loss" and not self.is_of_pairs

    @property
    def is_of_pairs(self) -> bool:
        """True where the rows are preference pairs, scored by how likely both answers are."""
        return any(row.result.pair for row in self.rows)


def _better_share_lower_bound(better: int, count: int, quantile: float) -> float:
    if not better:
        return 0.0
    share, square = better / count, quantile**2
    root = math.sqrt(square - 2 - 1 / count + 4 * share * (count - better + 1))
    return max(0.0, (2 * better + square - 1 - quantile * root) / (2 * (count + square)))


def _is_better_or_none_if_equal(row: RowScores) -> bool | None:
    """Return whether the result is better on a row, None where both are equal; what is not a number is worst."""
    result, other = (-math.inf if math.isnan(side.score) else side.score for side in (row.result, row.other))
    equal = math.isclose(result, other, rel_tol=_EQUAL_RELATIVE_TOLERANCE, abs_tol=1e-9)
    return None if equal else result > other


def evaluate_run(
    run: RunFolder,
    options: EvaluationOptions,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Score a run's result and what it is compared with, and return all scores.

    Scores are kept in the run's folder as they come: here, the same evaluation goes on where it was broken off.
    `on_progress` is told what is loaded, then how many rows are done. TuiTrainError where it cannot be done.
    """
    host = host_of_evaluation(run, options)
    request = _models_request(run, options, host)
    request |= _tasks_request(options, host) if options.tasks else rows_request(run, options, host)
    kept, messages = score(run, request, options, host, on_progress, cancelled)
    rows = rows_scored_by_both(kept.scores)
    require_scored_rows(rows, kept.scores)
    evaluation = Evaluation(
        by=request["by"],
        other_name=visible(options.earlier.result_name) if options.earlier else "base",
        rows=rows,
        usable_rows=messages.usable or len(rows),
        note="" if options.tasks else " ".join(_evaluation_notes(run, options, messages, kept.scores)),
        tasks=options.tasks,
        figures=messages.figures(),
        weights=request.get("folder", ""),
    )
    kept.write_summary(evaluation)
    return evaluation


def score(  # noqa: PLR0913, PLR0917 - what an evaluation is made of
    run: RunFolder,
    request: dict[str, Any],
    options: EvaluationOptions,
    host: str,
    on_progress: Callable[[str, int, int], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> "tuple[ScoreFile, ScoringMessageReader]":
    """Have a child score what a request names, and return all scores, which are kept as they come."""
    python = training_python(run, options.python, host)
    request |= {"device": python.device, "trusted": options.trusts_model_code}
    if options.tasks and not host:
        require_modules(python.python, ("lm_eval",), "tasks need lm-eval", install="lm-eval")
    kept = ScoreFile(run, request)
    if host or options.tasks:
        # Whether the files there are the same is not known here; of tasks lm-eval itself keeps what was answered.
        kept.clear()
    sides = request.get("sides") or ("result", "other")
    request |= {"after": {side: kept.last_number(side) for side in sides}}
    request |= {"cache": "" if host else str(kept.answers_folder)}
    child = ResultChild(python, "task_child.py" if options.tasks else "evaluate_child.py", request)
    messages = ScoringMessageReader(len(sides))
    try:
        while (message := child.read_message(_MAX_SILENCE_SECONDS, cancelled))["event"] != "done":
            messages.take(message, kept, on_progress)
    finally:
        child.close()
    return kept, messages


class ScoringMessageReader:
    """What a child has told of an evaluation of some sides so far, besides scores."""

    def __init__(self, side_count: int) -> None:
        self._side_count = side_count
        self.count = self.usable = self.learned = 0
        self._figures_by_side: dict[str, dict[str, float]] = {}

    def take(self, message: dict[str, Any], kept: "ScoreFile", on_progress: Callable[[str, int, int], None]) -> None:
        """Take a message, keep the score that it has, and tell how far it is."""
        if message["event"] == "loading":
            on_progress(visible(str(message.get("what"))), 0, 0)
        elif message["event"] == "rows":
            self.count, self.usable, self.learned = (int(message[name]) for name in ("count", "usable", "learned"))
        elif message["event"] == "score":
            kept.add(msgspec.convert(message, SideScore))
            if self.count:
                on_progress("", len(kept.scores), self._side_count * self.count)
        elif message["event"] == "progress":
            done, count = int(message["done"]), int(message["count"])
            on_progress("", done + (count if message["side"] == "other" else 0), 2 * count)
        elif message["event"] == "figures":
            self._figures_by_side[str(message["side"])] = msgspec.convert(message["figures"], dict[str, float])

    def figures(self) -> tuple[TaskMetric, ...]:
        """Return the figures that both sides have."""
        result, other = (self._figures_by_side.get(side, {}) for side in ("result", "other"))
        return tuple(TaskMetric(visible(name), result[name], other[name]) for name in result if name in other)


def newest_stored_evaluation(run: RunFolder, weights: Weights) -> Evaluation | None:
    """Return the newest evaluation of some weights that a run's folder keeps, None where none was made since these."""
    stored = list[tuple[float, Evaluation]]()
    for file in (run.path / EVALUATIONS_FOLDER).glob("*.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            changed_at = file.stat().st_mtime
            evaluation = msgspec.json.decode(file.read_bytes(), type=Evaluation)
            if evaluation.weights in {"", weights.path} and changed_at >= weights.changed_at:
                rows = rows_scored_by_both(_read_scores(file.with_suffix(".jsonl")))
                stored += [(changed_at, structs.replace(evaluation, rows=rows))] if rows else []
    return max(stored, key=lambda each: each[0], default=(0.0, None))[1]


def host_of_evaluation(run: RunFolder, options: EvaluationOptions) -> str:
    """Return the host on which a result is evaluated, empty for this machine.

    A result that was fetched is evaluated on its host where only that has the rows that were held out.
    """
    host = host_of_result(run, options.host, options.python)
    place = read_remote_location(run.path)
    chosen = options.data or options.tasks or options.python or options.earlier
    if host or place is None or chosen or (run.path / _HELD_OUT_FILE).is_file() or place_of_run(run).slurm:
        return host
    return place.host


def require_scored_rows(rows: Sequence[RowScores], scores: Sequence[SideScore]) -> None:
    """Raise BadInput where no row has a score of both sides."""
    if not rows:
        why = next((f": {visible(score.odd)}" for score in scores if score.odd), "")
        raise BadInput(f"no row could be scored{why}", "Name other rows: --data FILE")


def unscored_rows_note(scores: Sequence[SideScore]) -> str:
    """Return how many rows could not be scored, and why the first could not; empty where all could."""
    odd = {score.number: score.odd for score in reversed(scores) if score.odd}
    return f"{quantity(len(odd), 'row')} could not be scored: {visible(odd[min(odd)])}." if odd else ""


def _evaluation_notes(
    run: RunFolder, options: EvaluationOptions, messages: ScoringMessageReader, scores: Sequence[SideScore]
) -> Iterator[str]:
    if note := unscored_rows_note(scores):
        yield note
    if options.by == "loss" and any(row.result.tokens != row.other.tokens for row in rows_scored_by_both(scores)):
        yield "The two models split text into different tokens; both losses are per token of the result's."
    if messages.learned:
        these = "All" if messages.learned == messages.count else grouped_digits(messages.learned)
        yield f"{these} of these rows were in the training data of {visible(run.name)}: no proof for new ones."
    elif options.earlier and not options.data and (note := _other_held_out_rows_note(run, options.earlier)):
        yield note


def _other_held_out_rows_note(run: RunFolder, earlier: RunFolder) -> str:
    """Return that an earlier run held out other rows, so that it may have learned some of these; empty if not."""
    ours, theirs = (each.path / _HELD_OUT_FILE for each in (run, earlier))
    if theirs.is_file() and ours.read_bytes() == theirs.read_bytes():
        return ""
    return f"{visible(earlier.name)} held out other rows and may have learned some of these: name new ones with --data."


def _models_request(run: RunFolder, options: EvaluationOptions, host: str) -> dict[str, Any]:
    run_result = read_result(run)
    request: dict[str, Any] = {"base": run_result.base, "revision": run_result.revision, "earlier": None}
    if host:
        request |= {"candidates": result_folder_candidates(run), "talks": True}
    else:
        request |= weights_folder_request(require_language_model(run_result))
    if options.earlier is not None:
        if host:
            raise BadInput(
                "a result on a host can only be compared with its base model",
                "Fetch both results first: tui-train fetch RUN",
            )
        earlier = read_result(options.earlier)
        weights = weights_folder_request(require_language_model(earlier))
        request["earlier"] = {**weights, "base": earlier.base, "revision": earlier.revision}
    elif not (host or run_result.base):
        raise BadInput("the base model of this run is not known", "Compare with an earlier run: --against RUN")
    return request


def default_scoring(run: RunFolder) -> str:
    """Return how a run's result is scored where nothing is chosen: by its first reward of the user's, else by loss."""
    profile = run.read_profile() or Profile()
    rewards = chosen_rewards(profile.finetune) if trainer_has_own_field(profile, "finetune") else ()
    return next((f"function:{reward.text}" for reward in rewards if reward.file), "loss")


def rows_request(run: RunFolder, options: EvaluationOptions, host: str = "") -> dict[str, Any]:
    """Return which rows are scored, and how; TuiTrainError where they cannot be."""
    kind = options.by.partition(":")
    if kind[0] not in {"loss", "exact", "regex", "function"}:
        raise BadInput(
            f"--by {visible(options.by)} is not known", "Give loss, exact, regex:PATTERN or function:FILE:NAME"
        )
    request: dict[str, Any] = {"by": kind[0], "pattern": "", "function": ""}
    if kind[0] == "regex":
        request["pattern"] = _valid_pattern(kind[2])
    elif kind[0] == "function":
        request["function"] = _absolute_function_path(kind[2], host)
    profile = run.read_profile() or Profile()
    request |= {"data": _data_files(run, options, host)}
    request |= {"learned": _training_row_files(run, profile, host) if options.data else []}
    request |= {
        "length": _trained_length(run) or profile.recipe.sequence_length or 0,
        "answers_only": profile.finetune.answers_only,
    }
    return request | {"count": options.row_count, "seed": 0, "tokens": options.max_answer_tokens}


def _tasks_request(options: EvaluationOptions, host: str) -> dict[str, Any]:
    if options.data:
        raise BadInput("tasks have documents of their own", "Leave out --data, or --task.")
    metric = "" if options.by == "loss" else options.by
    tasks = [_absolute_task_path(task, host) for task in options.tasks]
    request: dict[str, Any] = {"by": metric or "task", "metric": metric, "tasks": tasks, "data": [], "function": ""}
    return request | {
        "count": options.row_count, "chat": options.chat_template, "from_folder": "" if host else str(Path.cwd())
    }  # fmt: skip


def _absolute_task_path(task: str, host: str) -> str:
    """Return a task's name as it is, its file or folder as a whole path."""
    is_name = "/" not in task and not task.endswith(".yaml")
    return task if is_name else _absolute_path(task, host, "Name a task, or the YAML file or folder of one: --task")


def _absolute_path(path: str, host: str, remedy: str) -> str:
    """Return the whole path of what is on a host (empty: this machine); NotFound with the remedy if it is not here."""
    if host:
        return require_path_on_host(path, host)
    whole = expand_home(path).absolute()
    if not whole.exists():
        raise NotFound(f"there is no {visible(str(whole))}", remedy)
    return str(whole)


def _valid_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadInput(
            f"{visible(pattern)} is no regular expression: {error}", "Give another: --by regex:PATTERN"
        ) from None
    return pattern


def _absolute_function_path(words: str, host: str) -> str:
    """Return the file and name of a function, the file as a whole path; of a host it is one already."""
    path, colon, name = words.rpartition(":")
    if not (path and colon and name.isidentifier()):
        raise BadInput(f"{visible(words)} names no function", "Give its file and name: --by function:score.py:score")
    whole = _absolute_path(path, host, "Name the file of the function.")
    if not host and not Path(whole).is_file():
        raise NotFound(f"there is no file {visible(whole)}", "Name the file of the function.")
    return f"{whole}:{name}"


def _data_files(run: RunFolder, options: EvaluationOptions, host: str) -> list[str]:
    """Return the files with the rows: those that are named, else the held-out rows of the run."""
    if options.data:
        return [_absolute_path(path, host, "Name files that are there: --data FILE") for path in options.data]
    held_out = _path_in_run(run, _HELD_OUT_FILE, host)
    if not host and not Path(held_out).is_file():
        why = f"{visible(run.name)} kept no rows for evaluations"
        remedy = "Name a file with other rows: --data FILE. To keep some in the next run, set data.evaluation=0.1."
        raise NoHeldOutRows(why, remedy)
    return [held_out]


def _path_in_run(run: RunFolder, name: str, host: str) -> str:
    """Return the path of a file in the folder of a run, which is that on the host where one is named."""
    place = read_remote_location(run.path) if host else None
    return f"{place.folder}/{name}" if place else str(run.path / name)


def _trained_length(run: RunFolder) -> int:
    """Return at how many tokens the rows were cut in the training that wrote the result, 0 where that is not known."""
    attempts, status = run.plan().get("attempts"), read_status(run)
    position = status.attempts[-1].position if status.attempts else 1
    try:
        parts = attempts[position - 1]["command"]["parts"]  # type: ignore[index]
        words = [word for part in parts for word in part["words"] if isinstance(word, str)]
    except (LookupError, TypeError):
        return 0
    lengths = [word.removeprefix(_LENGTH_ARGUMENT) for word in words if word.startswith(_LENGTH_ARGUMENT)]
    return int(lengths[-1]) if lengths and lengths[-1].isdigit() else 0


def _training_row_files(run: RunFolder, profile: Profile, host: str) -> list[str]:
    """Return the files with the rows that a run trained on."""
    prepared = _path_in_run(run, _TRAINING_ROWS_FILE, host)
    return [prepared] if host or Path(prepared).is_file() else list(profile.trainer.data)


class ScoreFile:
    """Scores of one evaluation in a run's folder, a line each, which are added as they come."""

    def __init__(self, run: RunFolder, request: dict[str, Any]) -> None:
        """Read what the same request has scored before, on the same weights and files."""
        function = request["function"].rpartition(":")[0]
        files = [*request["data"], function, request.get("folder"), (request["earlier"] or {}).get("folder")]
        states = [sorted(_file_states(Path(file), deep=file in request["data"])) for file in files if file]
        question = msgspec.json.encode([sorted(request.items()), states])
        self._file = run.path / EVALUATIONS_FOLDER / f"{hashlib.sha256(question).hexdigest()[:16]}.jsonl"
        self.scores = _read_scores(self._file)

    @property
    def answers_folder(self) -> Path:
        """The folder in which lm-eval keeps what was answered, until the evaluation has ended."""
        return self._file.with_suffix("")

    def add(self, score: SideScore) -> None:
        """Keep a score."""
        self.scores.append(score)
        with raising_cannot_write(self._file):
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("ab") as file:
                # A line break before it: the line before may be a half.
                file.write(b"\n" + json.dumps(msgspec.structs.asdict(score)).encode())  # which knows NaN

    def clear(self) -> None:
        """Forget what was scored before."""
        self.scores = []
        self._file.unlink(missing_ok=True)

    def last_number(self, side: str) -> int:
        """Return the number of the row that a side scored last, -1 for none."""
        return max((score.number for score in self.scores if score.side == side), default=-1)

    def write_summary(self, evaluation: Evaluation) -> None:
        """Keep what the rows of an evaluation that has ended mean, beside them."""
        shutil.rmtree(self.answers_folder, ignore_errors=True)
        write_atomically(self._file.with_suffix(".json"), msgspec.json.encode(structs.replace(evaluation, rows=())))


def _read_scores(file: Path) -> list[SideScore]:
    scores = []
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        # The last line of one that was killed may be a half.
        with contextlib.suppress(Unparsable, msgspec.ValidationError):
            scores.append(msgspec.convert(parse_json_object(line), SideScore))
    return scores


def rows_scored_by_both(scores: Sequence[SideScore]) -> tuple[RowScores, ...]:
    """Return the rows that both sides have scored."""
    return rows_scored_by_two_sides(scores, "result", "other")


def rows_scored_by_two_sides(scores: Sequence[SideScore], result: str, other: str) -> tuple[RowScores, ...]:
    """Return the rows that two sides have scored, as those of a result and of another."""
    # Two evaluations at once each keep a score of the same row.
    scored = [score for score in scores if not score.odd]
    results, others = ({score.number: score for score in scored if score.side == side} for side in (result, other))
    return tuple(RowScores(results[number], others[number]) for number in sorted(results.keys() & others))


def _file_states(path: Path, *, deep: bool) -> Iterator[FileState]:
    """Yield the state of a file, or of the files in a folder, with `deep` also below it."""
    with contextlib.suppress(OSError):
        for file in (path.rglob("*") if deep else path.iterdir()) if path.is_dir() else (path,):
            if file.is_file():
                yield file_state(file)
