"""docs/kubernetes.md: its values are keys of Dagster's chart, and agree with our own dagster.yaml, lock and manifests.

The keys are those of the models that the chart's values.schema.json is made from (helm/dagster/schema in Dagster's
repository). The chart itself is run by nobody here.
"""

from typing import Any

from ruamel.yaml import YAML

from tests import doc_blocks
from tests.conftest import ROOT

BLOCKS = doc_blocks.blocks(ROOT / "docs" / "kubernetes.md")
(VALUES,) = [block.tree for block in BLOCKS if "runLauncher:" in block.text]
(DEPLOYMENT,) = VALUES["dagster-user-deployments"]["deployments"]
OURS = YAML(typ="safe", pure=True).load((ROOT / "assets" / "dagster.yaml").read_text(encoding="utf-8"))

RUN = {"containerConfig", "podSpecConfig", "podTemplateSpecMetadata", "jobSpecConfig", "jobMetadata"}
PLACED = {
    "nodeSelector",
    "affinity",
    "tolerations",
    "podSecurityContext",
    "securityContext",
    "resources",
    "schedulerName",
}
PROBED = {"livenessProbe", "readinessProbe", "startupProbe"}
WITH = {"env", "envConfigMaps", "envSecrets", "volumes", "volumeMounts", "annotations", "labels"}
CHART: dict[str, set[str]] = {
    "": {
        *("dagsterWebserver", "dagster-user-deployments", "postgresql", "generatePostgresqlPasswordSecret"),
        *(
            "generateCeleryConfigSecret",
            "rabbitmq",
            "redis",
            "flower",
            "ingress",
            "imagePullSecrets",
            "computeLogManager",
        ),
        *(
            "scheduler",
            "runLauncher",
            "pythonLogs",
            "dagsterDaemon",
            "busybox",
            "migrate",
            "telemetry",
            "serviceAccount",
        ),
        *("global", "retention", "concurrency", "additionalInstanceConfig"),
    },
    "global": {
        *("postgresqlSecretName", "dagsterHome", "serviceAccountName", "celeryConfigSecretName"),
        "dagsterInstanceConfigMap",
    },
    "postgresql": {
        *("postgresqlScheme", "image", "enabled", "postgresqlHost", "postgresqlUsername", "postgresqlPassword"),
        *("postgresqlDatabase", "postgresqlParams", "service"),
    },
    "dagster-user-deployments": {"enabled", "enableSubchart", "imagePullSecrets", "deployments"},
    "dagster-user-deployments.deployments": {
        *("name", "image", "port", "dagsterApiGrpcArgs", "codeServerArgs", "includeConfigInLaunchedRuns"),
        *WITH,
        *PLACED,
        *PROBED,
    },
    "runLauncher": {"type", "config"},
    "runLauncher.config": {"celeryK8sRunLauncher", "k8sRunLauncher", "customRunLauncher"},
    "runLauncher.config.k8sRunLauncher": {
        *("image", "imagePullPolicy", "jobNamespace", "loadInclusterConfig", "kubeconfigFile", "envConfigMaps"),
        *("envSecrets", "envVars", "volumeMounts", "volumes", "labels", "failPodOnRunFailure", "resources"),
        *("schedulerName", "securityContext", "runK8sConfig"),
    },
    "runLauncher.config.k8sRunLauncher.runK8sConfig": RUN,
    "dagsterDaemon": {
        *(
            "enabled",
            "image",
            "runCoordinator",
            "heartbeatTolerance",
            "deploymentLabels",
            "runMonitoring",
            "runRetries",
        ),
        *("sensors", "schedules", *WITH, *PLACED, *PROBED),
    },
    "dagsterDaemon.runRetries": {"enabled", "maxRetries", "retryOnAssetOrOpFailure"},
    "concurrency": {"enabled", "pools", "runs"},
    "concurrency.pools": {"defaultLimit", "granularity", "opGranularityRunBuffer"},
    "concurrency.runs": {"maxConcurrentRuns", "tagConcurrencyLimits"},
    "concurrency.runs.tagConcurrencyLimits": {"key", "value", "limit"},
    "dagsterWebserver": {
        *("replicaCount", "image", "nameOverride", "pathPrefix", "service", "workspace", "deploymentLabels"),
        *("enableReadOnly", "dbStatementTimeout", "dbPoolRecycle", "logLevel", *WITH, *PLACED, *PROBED),
    },
    "telemetry": {"enabled"},
}
"""Place in the values → the keys that the chart knows there; below other places anything goes (Kubernetes' own objects)."""


def walk(value: Any, place: str = "") -> None:
    """Hold every map against the keys that the chart knows at its place."""
    if isinstance(value, list):
        for each in value:
            walk(each, place)
    elif isinstance(value, dict):
        assert place not in CHART or set(value) <= CHART[place], (place, set(value) - CHART[place])
        for key, below in value.items():
            walk(below, f"{place}.{key}".lstrip("."))


def test_every_key_is_one_of_the_charts() -> None:
    walk(VALUES)
    assert VALUES["runLauncher"]["type"] == "K8sRunLauncher"


def test_queue_limits_and_retries_are_those_of_our_own_instance() -> None:
    limits, retries = VALUES["concurrency"], VALUES["dagsterDaemon"]["runRetries"]
    ours = OURS["concurrency"]
    assert limits["pools"]["defaultLimit"] == ours["pools"]["default_limit"]
    assert limits["runs"]["tagConcurrencyLimits"] == ours["runs"]["tag_concurrency_limits"]
    assert retries["maxRetries"] == OURS["run_retries"]["max_retries"]
    assert retries["retryOnAssetOrOpFailure"] == OURS["run_retries"]["retry_on_asset_or_op_failure"]
    assert VALUES["telemetry"] == OURS["telemetry"]


def test_names_agree() -> None:
    text = "".join(block.text for block in BLOCKS)
    volumes = {volume["name"]: volume for volume in DEPLOYMENT["volumes"]}
    assert {mount["name"] for mount in DEPLOYMENT["volumeMounts"]} == set(volumes)
    (claim,) = [block.tree for block in BLOCKS if "PersistentVolumeClaim" in block.text and block.tree.get("kind")]
    assert volumes["home"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert f"configmap {volumes['settings']['configMap']['name']} " in text
    for secret in (DEPLOYMENT["envSecrets"][0]["name"], VALUES["global"]["postgresqlSecretName"]):
        assert f"secret generic {secret} " in text
    image = "{repository}:{tag}".format(**DEPLOYMENT["image"])
    assert f"-t {image} ." in text and f"docker push {image}\n" in text
    workspace = YAML(typ="safe", pure=True).load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))
    (module,) = [each["python_module"] for each in workspace["load_from"]]
    assert DEPLOYMENT["name"] == module["location_name"] and module["module_name"] in DEPLOYMENT["dagsterApiGrpcArgs"]
    mounts = {mount["name"]: mount["mountPath"] for mount in DEPLOYMENT["volumeMounts"]}
    environment = {each["name"]: each["value"] for each in DEPLOYMENT["env"]}
    (settings,) = [block.tree for block in BLOCKS if block.text.startswith("# settings.yaml")]
    assert environment["BERT_HOME"] == settings["home"] == mounts["home"]
    assert environment["BERT_SETTINGS"] == f"{mounts['settings']}/settings.yaml"


def test_the_chart_is_of_the_locked_dagster() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (line,) = [line for block in BLOCKS for line in block.text.splitlines() if "--version" in line]
    assert f"dagster=={line.split('--version ')[1].split()[0]}\n" in lock
