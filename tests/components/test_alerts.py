"""Alerts by Apprise, received on loopback: what is told, that it is told once, and that nothing is lost with a target."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from graphmill.components import Alerts
from graphmill.errors import SettingsError
from graphmill.orchestration import alerts

pytest.importorskip("apprise")


class Receiver:
    """A web hook on loopback: the messages that it was sent, unless it is ``away``."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.away = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not receiver.away:
                    receiver.messages.append(body)
                self.send_response(503 if receiver.away else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.target = f"json://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


RESULT = {"passed": True, "severity": dg.AssetCheckSeverity.ERROR}
DECISION = {"decision": "promoted", "reason": "better"}


@dg.asset(
    key=["toy", "hgt_embeddings"],
    check_specs=[dg.AssetCheckSpec("finite", asset=["toy", "hgt_embeddings"])],
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
)
def embeddings() -> dg.MaterializeResult:
    return dg.MaterializeResult(
        check_results=[dg.AssetCheckResult(check_name="finite", description="two rows are nan", **RESULT)]
    )


@dg.asset(key=["toy", "hgt_promoted"])
def promoted() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata=dict(DECISION))


@dg.asset(key=["toy", "broken"])
def broken() -> None:
    raise dg.Failure("the graph is empty")


class Watched:
    """A code location with alerts, and its looks."""

    def __init__(self, receiver: Receiver, **attributes: Any) -> None:
        context: Any = SimpleNamespace()
        made = Alerts(**{"targets": [receiver.target], **attributes}).build_defs(context)
        self.definitions = dg.Definitions.merge(dg.Definitions(assets=[embeddings, promoted, broken]), made)
        self.sensors = {sensor.name: sensor for sensor in made.sensors or ()}
        self.resource = made.resources["alerts"]
        self.instance, self.cursor = dg.DagsterInstance.ephemeral(), None

    def materialize(self, asset: dg.AssetsDefinition) -> dg.ExecuteInProcessResult:
        return dg.materialize([asset], instance=self.instance, raise_on_error=False)

    def look(self) -> str:
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            repository_def=self.definitions.get_repository_def(),
            resources={"alerts": self.resource},
        ) as context:
            found = self.sensors["alerts_looks"].evaluate_tick(context)
        self.cursor = found.cursor
        return str(found.skip_message)


@pytest.fixture
def watched(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setitem(RESULT, "passed", True)
    monkeypatch.setitem(DECISION, "decision", "promoted")
    return Watched(receiver, ui="http://dagster.example:3000/")


def test_a_failed_check_is_told_of_once(watched: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.materialize(embeddings)
    assert watched.look() == "nothing new"
    monkeypatch.setitem(RESULT, "passed", False)
    watched.materialize(embeddings)
    assert watched.look() == "told of 1"
    assert watched.look() == "nothing new"
    (message,) = receiver.messages
    assert message["title"] == "toy/hgt_embeddings: check finite failed. two rows are nan"
    assert "(http://dagster.example:3000/assets/toy/hgt_embeddings)" in message["message"]
    watched.materialize(embeddings)  # failed again, in another run
    assert watched.look() == "told of 1"


def test_what_failed_before_the_first_look_is_old(
    watched: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RESULT, "passed", False)
    watched.materialize(embeddings)
    assert [watched.look(), watched.look()] == ["nothing new", "nothing new"]
    assert not receiver.messages


def test_warnings_are_told_of_where_they_are_asked_for(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESULT, "passed", False)
    monkeypatch.setitem(RESULT, "severity", dg.AssetCheckSeverity.WARN)
    for severity, told in (("error", "nothing new"), ("warn", "told of 1")):
        watched = Watched(receiver, severity=severity)
        watched.look()
        watched.materialize(embeddings)
        assert watched.look() == told


def test_a_stale_asset_and_a_kept_champion(
    watched: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.materialize(embeddings)
    watched.materialize(promoted)
    watched.look()
    monkeypatch.setitem(DECISION, "decision", "kept")
    monkeypatch.setitem(DECISION, "reason", "the gain is not sure")
    watched.materialize(promoted)
    now = time.time()
    monkeypatch.setattr(alerts.time, "time", lambda: now + 30 * 3600)
    assert watched.look() == "told of 2"
    (message,) = receiver.messages
    assert message["title"] == "2 alerts"
    assert "toy/hgt_embeddings is stale: it is 30 hours old, at most 24 are allowed" in message["message"]
    assert "toy/hgt_promoted: the new run did not go live. the gain is not sure" in message["message"]
    assert watched.look() == "nothing new"


def test_a_target_that_is_away_gets_it_at_the_next_look(
    watched: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.look()
    monkeypatch.setitem(RESULT, "passed", False)
    watched.materialize(embeddings)
    receiver.away = True
    with pytest.raises(Exception, match=r"no target accepted the alert \(json://…\)"):
        watched.look()
    receiver.away = False
    assert watched.look() == "told of 1"
    assert len(receiver.messages) == 1


def test_a_failed_run_is_told_of_with_its_reason(watched: Watched, receiver: Receiver) -> None:
    result = watched.materialize(broken)
    context = dg.build_run_status_sensor_context(
        sensor_name="alerts_runs",
        dagster_instance=watched.instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
        resources={"alerts": watched.resource},
    ).for_run_failure()
    watched.sensors["alerts_runs"](context)
    (message,) = receiver.messages
    assert message["title"].startswith("Run failed: ")
    assert "toy__broken: the graph is empty" in message["message"]
    assert f"http://dagster.example:3000/runs/{result.run_id}" in message["message"]


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"targets": []}, "targets is empty"),
        ({"targets": [None]}, r"target 1 \(without ://\) is not an address of Apprise"),
        ({"targets": ["slak://secret-token"]}, r"target 1 \(slak://…\) is not an address of Apprise"),
        ({"events": []}, "'events' is empty"),
        ({"name": "two words"}, "name 'two words' must be letters"),
    ],
)
def test_mistakes_are_one_sentence_without_the_secret(
    receiver: Receiver, attributes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence) as told:
        Watched(receiver, **attributes)
    assert "secret" not in str(told.value)


def test_a_missing_extra_is_one_sentence(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r'pip install "graphmill\[alerts\]"'):
        Watched(receiver)


def test_targets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "json://127.0.0.1:9/hook")
    written = 'targets: ["{{ env.HOOK }}"]\nevents: [failed_run]\n'
    assert Alerts.resolve_from_yaml(written).targets == ["json://127.0.0.1:9/hook"]
