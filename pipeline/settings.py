"""settings.yaml: where and how fast things run. Recorded with a result, never part of a key."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.config import Frozen
from pipeline.errors import RecipeError
from pipeline.recipes import yamlfile
from pipeline.recipes.refusal_words import rule_of
from pipeline.recipes.secret_words import holds_login, secrets_in
from pipeline.stage import ROOT
from pipeline.storage.objects import checked_url

LOCAL_RUNNERS = frozenset(
    {"FnApiRunner", "DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner", "PrismRunner"}
)
"""Runners whose workers are processes of this machine."""


def _no_flag(value: Any) -> Any:
    """pydantic takes true for 1: one token at once, one second."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number; it is {str(value).lower()}")
    return value


def _tokens_or_auto(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """One sentence, where pydantic has one for each member of the union."""
    try:
        return read(value)
    except ValidationError:
        plain = isinstance(value, int | float | str)
        said = str(value).lower() if isinstance(value, bool) else repr(value) if plain else "no single value"
        raise ValueError(f"must be a number of tokens from 1 on, or auto; it is {said}") from None


Whole = Annotated[int, BeforeValidator(_no_flag), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_no_flag), Field(gt=0)]


class BeamSettings(Frozen):
    """How Beam pipelines run."""

    runner: str = "FnApiRunner"
    """any Beam runner (docs/cluster.md); multi_threading and DaskRunner lose data and are refused"""
    workers: Whole = 2
    """processes of the local runner"""
    options: dict[str, Any] = Field(default_factory=dict)
    """more pipeline options, passed on as they are; no secrets, since settings stand in records"""
    files: Literal["auto", "disk", "store"] = "auto"
    """how workers reach files: by paths of a disk that all of them see, or by URLs of the object store. auto: by URLs where
    the store lies in one and the runner is not one of this machine"""


PLACEHOLDERS = frozenset({"module", "run", "ranks"})


def _checked_template(template: str) -> str:
    """A launcher's command: empty, or with {module} and {run} and no placeholder that nothing is put in for."""
    named = set(re.findall(r"(?<!\$)\{(\w+)\}", template))
    if named - PLACEHOLDERS:
        raise ValueError(f"{{{min(named - PLACEHOLDERS)}}} is not known; there are {{module}}, {{run}} and {{ranks}}")
    if template and not {"module", "run"} <= named:
        raise ValueError("it must name {module} and {run}, as in: ssh HOST 'cd FOLDER && python -m {module} {run}'")
    return template


class TrainingSettings(Frozen):
    """How training processes run."""

    device: Literal["auto", "cpu", "cuda", "xla"] = "auto"
    """auto: cuda where there is one, else cpu; xla: TPUs by torch-xla, for pretraining (docs/devices.md)"""
    threads: Whole = 2
    """CPU threads of one training process"""
    ranks: Whole = 1
    """processes that pretrain one model together, started by torchrun"""
    micro_batch_tokens: Annotated[Whole | Literal["auto"] | None, WrapValidator(_tokens_or_auto)] = None
    """of pretraining: at most so many tokens, padding included, go through the model at once; a larger batch is split by
    rows and its gradients are added up; auto: as many as fit into memory, found before the first step; None: never"""
    activation_checkpointing: bool = False
    """of pretraining: what is inside of a layer is computed again on the way back instead of kept: less memory, about a third
    more time, the same results"""
    checkpoint_seconds: Seconds = 60
    """seconds between two checkpoints"""
    checkpoint_steps: Whole | None = None
    """checkpoints at every multiple of so many steps, besides"""
    keep_checkpoints: Annotated[Whole, Field(ge=2)] = 2
    """how many are kept, the newest; at least two, so that one may break"""
    milestone_steps: Whole | None = None
    """checkpoints of a multiple of so many steps are kept for good"""
    launcher: Annotated[str, AfterValidator(_checked_template)] = ""
    """a shell command that starts the process elsewhere, with {module}, {run} and {ranks}; empty: here"""
    stop_seconds: Seconds = 60
    """a process that is asked to stop is killed after so long; it finishes its step and saves meanwhile"""
    hang_seconds: Seconds = 1800
    """a process without progress for so long is ended, and says where it hangs"""

    @model_validator(mode="after")
    def _ranks_can_be_started(self) -> "TrainingSettings":
        if self.device == "xla" and self.ranks > 1:
            raise ValueError("one process drives all XLA devices of a host: with device: xla leave ranks at 1")
        if self.device == "xla" and self.micro_batch_tokens == "auto":
            raise ValueError("micro_batch_tokens: auto looks on a CPU or a CUDA card; with device: xla write a number")
        if self.device == "xla" and self.activation_checkpointing:
            raise ValueError("activation_checkpointing is not available with device: xla; lower micro_batch_tokens")
        if self.launcher and self.ranks > 1 and "{ranks}" not in self.launcher:
            raise ValueError(f"ranks: {self.ranks} does not reach a launcher without {{ranks}}")
        return self


class DownloadSettings(Frozen):
    """Where Wikimedia's dumps come from."""

    site: Annotated[str, Field(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$")] = "https://dumps.wikimedia.org"
    """the dump site, or a mirror that is laid out as it; checksums come from there too"""
    hosts: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9.:-]+$")], ...], Field(min_length=1)] = (
        "dumps.wikimedia.org",
    )
    """hosts that dumps may come from, by redirect too; `site` must be on one of them"""


class RetentionSettings(Frozen):
    """What `bert gc` may remove (docs/retention.md)."""

    history: Annotated[int, BeforeValidator(_no_flag), Field(ge=0)] = 2
    """of each asset: the version that it has now and so many before stay, with all that they were made of"""
    shards_days: Annotated[float, BeforeValidator(_no_flag), Field(ge=0)] | None = 30
    """shards of finished trainings may go so many days after their last use, although they are needed: they are made again
    when something reads them. None: never"""
    grace_days: Annotated[float, BeforeValidator(_no_flag), Field(ge=0)] = 7
    """what was removed lies in the trash for so long"""
    sole_home: bool = False
    """of a store in an object store: no other home uses it. What others have is not seen from here"""


class ProviderSettings(Frozen):
    """Who publishes models, and what records of a training can't tell of it: stands in the attestations of a release
    (docs/attestations.md), "unknown" where it is empty."""

    name: str = ""
    """who publishes the model"""
    contact: str = ""
    """an address where they are reached"""
    representative: str = ""
    """authorised representative in the European Union"""
    placed_on_market: str = ""
    """when the model was placed on the Union's market"""
    model_licence: str = ""
    """of the released weights: an identifier of the Hugging Face Hub"""
    other_files: str = ""
    """what sources are that were read from a disk or a URL: public, licensed, private"""
    licensed_data: str = ""
    """data sets licensed by rightsholders"""
    private_data: str = ""
    """data sets from other third parties that are not public"""
    crawled_data: str = ""
    """data that was crawled or scraped, and by whom"""
    user_data: str = ""
    """data of users of services"""
    synthetic_data: str = ""
    """data that other models made, and which"""
    other_data: str = ""
    """data of none of these kinds"""
    reserved_rights: str = ""
    """how reservations of rights from text and data mining were respected"""
    illegal_content: str = ""
    """how it was kept out"""


def _plain_webhook(url: str) -> str:
    if holds_login(url):
        raise ValueError(
            "must not hold a user or password: put the URL into an environment variable and name it: url_from"
        )
    return url


Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""the name of an environment variable"""
Address = Annotated[str, Field(pattern=r"^[^@\s<>,;]+@[^@\s<>,;]+$")]


class WebhookSettings(Frozen):
    """Where alerts go as JSON, by POST."""

    url: Annotated[str, Field(pattern=r"^https?://[^/?#\s]+([/?][^#\s]*)?$"), AfterValidator(_plain_webhook)] | None = (
        None
    )
    """gets a POST with JSON; without user and password"""
    url_from: Variable | None = None
    """the environment variable that holds the URL, where the URL itself is a secret"""

    @model_validator(mode="after")
    def _one(self) -> "WebhookSettings":
        if self.url is None and self.url_from is None:
            raise ValueError("needs url, or url_from: the name of an environment variable that holds the URL")
        if self.url is not None and self.url_from is not None:
            raise ValueError("has url and url_from: keep one of the two")
        return self


class EmailSettings(Frozen):
    """How alerts go by e-mail."""

    host: Annotated[str, Field(min_length=1)]
    """of the SMTP server"""
    port: Annotated[int, BeforeValidator(_no_flag), Field(ge=1, le=65535)] = 587
    """465: TLS from the first byte; others: by STARTTLS where the server offers it"""
    from_: Annotated[Address, Field(alias="from")]
    """one address"""
    to: Annotated[tuple[Address, ...], Field(min_length=1)]
    """one or more"""
    user_from: Variable | None = None
    """the environment variable that holds the user"""
    password_from: Variable | None = None
    """the environment variables that hold user and password; a password goes over TLS only"""

    @model_validator(mode="after")
    def _both(self) -> "EmailSettings":
        if (self.user_from is None) != (self.password_from is None):
            raise ValueError("user_from and password_from go together")
        return self


class AlertSettings(Frozen):
    """Who is told what a person should hear of (docs/alerts.md)."""

    webhook: WebhookSettings | None = None
    email: EmailSettings | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that are read when something is told."""
        named = [self.webhook.url_from] if self.webhook else []
        named += [self.email.user_from, self.email.password_from] if self.email else []
        return tuple(name for name in named if name is not None)

    @model_validator(mode="after")
    def _any(self) -> "AlertSettings":
        if self.webhook is None and self.email is None:
            raise ValueError("needs webhook or email; without alerts leave the section out")
        return self


def _plain_uri(uri: str) -> str:
    if holds_login(uri):
        raise ValueError(
            "must not hold a user or password: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
            "MLFLOW_TRACKING_TOKEN, in the environment"
        )
    if uri.startswith("file:"):
        raise ValueError(
            "must not be a folder: MLflow writes to folders no more; write sqlite:////data/mlflow.db instead"
        )
    return uri


class MlflowSettings(Frozen):
    """The MLflow server that hears of trainings while they run (docs/pretraining.md)."""

    uri: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+]*:\S+$"), AfterValidator(_plain_uri)]
    """as MLflow's tracking URI"""
    experiment: Annotated[str, Field(min_length=1)] = "bertworks"
    """is made where there is none"""


class Settings(Frozen):
    """All of settings.yaml."""

    recipes: str = "recipes"
    """folder of the recipes; a relative path starts at the checkout, as those that follow"""
    home: str = ".bert"
    """folder of the store and of the state of runs; the environment variable BERT_HOME wins over it"""
    store: Annotated[str, AfterValidator(checked_url)] | None = None
    """URL of the object store for content, records and memory; None: they lie under `home`"""
    dagster_home: str | None = None
    """folder of Dagster's database, on a local disk and never a network one; None: `dagster` under `home`; DAGSTER_HOME
    wins over it"""
    lease_seconds: Seconds = 60
    """an owner of a lease or of staging on another host is dead when its heartbeat is older than this"""
    downloads: DownloadSettings = DownloadSettings()
    beam: BeamSettings = BeamSettings()
    training: TrainingSettings = TrainingSettings()
    retention: RetentionSettings = RetentionSettings()
    provider: ProviderSettings = ProviderSettings()
    alerts: AlertSettings | None = Field(default=None, exclude=True)
    """left out of records: no result depends on it, and an address may be a secret"""
    metrics: str | None = Field(default=None, exclude=True)
    """the file that tells a person's monitoring how retrains go, in the OpenMetrics text format; left out of records too"""
    mlflow: MlflowSettings | None = Field(default=None, exclude=True)
    """where curves of trainings go while they train; left out of records too"""

    @model_validator(mode="after")
    def _reachable(self) -> "Settings":
        if self.beam.files == "store" and self.store is None:
            raise ValueError("beam.files: store needs `store`, the URL of an object store")
        return self

    @property
    def beam_by_url(self) -> bool:
        """Whether Beam workers reach files by URLs of the object store."""
        if self.store is None or self.beam.files == "disk":
            return False
        return self.beam.files == "store" or self.beam.runner.rpartition(".")[2] not in LOCAL_RUNNERS

    @property
    def recipes_path(self) -> Path:
        """Folder of the recipes."""
        return (ROOT / self.recipes).resolve()

    @property
    def home_path(self) -> Path:
        """Folder of the store: `BERT_HOME`, else `home`, from the repository's root."""
        return (ROOT / (os.environ.get("BERT_HOME") or self.home)).resolve()

    @property
    def metrics_path(self) -> Path | None:
        """The metrics file: `metrics`, from the repository's root."""
        return (ROOT / self.metrics).resolve() if self.metrics else None

    @property
    def dagster_home_path(self) -> Path:
        """Dagster's folder: `DAGSTER_HOME`, else `dagster_home`, else `dagster` beside the store."""
        named = os.environ.get("DAGSTER_HOME") or self.dagster_home
        return (ROOT / named).resolve() if named else self.home_path / "dagster"


UNRECORDED = ("alerts", "metrics", "mlflow")
"""stand in no record, so an address with a secret may be among them"""


def _refused_values(error: ValidationError) -> str:
    """What is wrong, each with its key; the value too where that helps, and where it can't be a secret: a number or a short text under a
    known key. A rule of ours says itself what is wrong."""
    told = []
    for each in error.errors():
        at = ".".join(str(part) if re.fullmatch(r"[\w-]{1,60}", str(part)) else "…" for part in each["loc"])
        plain = isinstance(each["input"], int | float | str) and len(str(each["input"])) <= 100
        silent = each["type"] in ("value_error", "extra_forbidden") or not plain or {*UNRECORDED} & set(each["loc"])
        rule = "unknown key" if each["type"] == "extra_forbidden" else rule_of(each)
        told.append(f"{at}: {rule}" + ("" if silent else f" (got {each['input']!r})"))
    return "; ".join(told[:20]) + (f"; and {len(told) - 20} more" if len(told) > 20 else "")


def _check_secrets(loaded: Any) -> None:
    """Settings stand in records, which are shown and kept for ever. Raises ValueError with the key; no value is told."""
    recorded = {k: v for k, v in loaded.items() if k not in UNRECORDED} if isinstance(loaded, dict) else loaded
    for at, found in secrets_in(recorded):
        raise ValueError(f"{at or 'the top'}: {found} may not stand here: settings stand in records")


@cache
def _read(path: Path) -> Settings:
    if not os.path.lexists(path):
        return Settings()
    correct = "Correct settings.yaml, or remove the key to take its default."
    text = yamlfile.text_of(path)
    try:
        yamlfile.check_size(path, text)
        loaded = YAML(typ="safe", pure=True).load(text)
    except (
        YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:  # what YAML's own tags may raise, too
        mark = getattr(error, "problem_mark", None)  # the line itself is not told: a secret may stand in it
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise RecipeError(f"{path}: not YAML{where}", "Correct the file there, or just before.") from None
    try:
        _check_secrets(loaded)
    except ValueError as error:
        todo = "Let the environment of the process that needs it hold it (docs/security.md)."
        raise RecipeError(f"{path}: {error}", todo) from None
    try:
        return Settings.model_validate(loaded or {})
    except ValidationError as error:
        raise RecipeError(f"{path}: {_refused_values(error)}", correct) from None


def settings() -> Settings:
    """The settings of this process: the file that `BERT_SETTINGS` names, else settings.yaml of the checkout."""
    named = os.environ.get("BERT_SETTINGS")
    path = Path(named).absolute() if named else ROOT / "settings.yaml"
    if named and not os.path.lexists(path):
        raise RecipeError(f"BERT_SETTINGS names {named}, which does not exist", "Correct or unset BERT_SETTINGS.")
    return _read(path)
