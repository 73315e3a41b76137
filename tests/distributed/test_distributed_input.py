"""What cannot work is refused by name, at once, before anything is created."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict

import numpy as np
import pytest

from frugalrl.cli import main
from frugalrl.distributed import cluster as clusters
from frugalrl.distributed.cluster import (
    check_nodes,
    check_reachable,
    code_versions,
    connected,
    refuse_other_versions,
)
from frugalrl.distributed.fleet import ActorSettings
from frugalrl.distributed.training import check_settings, train
from frugalrl.training.errors import ConfigError

ray_group = pytest.mark.xdist_group("ray")


def told(capsys) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "Pendulum-v1", "--steps", "2000", "--methods", "baseline", "--backend", "ray"],
        ["train", "Pendulum-v1", "--actors", "2"],
    ],
)
def test_without_ray_the_command_that_installs_it_is_named(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "frugalrl[ray,train]"' in told(capsys)
    assert not (tmp_path / "out").exists()


def test_without_fsspec_the_command_that_installs_it_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    words = ["compare", "Pendulum-v1", "--methods", "baseline", "--backend", "ray"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "frugalrl[ray,train]"' in told(capsys)


def test_an_address_where_nobody_listens_is_told_at_once(tmp_path, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        words = ["train", "Pendulum-v1", "--actors", "1", "--address", address]
        # In a process of its own: here another test's Ray may be connected already.
        done = subprocess.run(
            [sys.executable, "-m", "frugalrl.cli", *words, "--out", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert f"address='{address}' cannot be reached" in done.stderr
    assert "refused" in done.stderr
    assert not (tmp_path / "out").exists()


def test_something_else_than_ray_at_the_address_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            line, _ = server.accept()
            line.recv(100)
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            line.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConfigError, match=r"cannot be reached: .* it is not Ray"):
            check_reachable(address)
        thread.join()


def test_a_silent_address_is_given_up_after_a_while():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"no answer within 0.1 s.*ray start --head"):
            check_reachable(address, seconds=0.1)


@pytest.mark.parametrize(
    "address", ["ray://host:10001", "host", ":6379", "host:port", "h:99999", "a..b:6379", "h:²"]
)
def test_what_is_no_address_is_told(address):
    with pytest.raises(ConfigError, match=f"address='{address}'"):
        check_reachable(address, seconds=0.1)


def test_no_cluster_to_be_found_is_told(monkeypatch):
    class Nobody:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_) -> None:
            raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setitem(sys.modules, "ray", Nobody)
    with (
        pytest.raises(ConfigError, match="address='auto': Could not find any running Ray"),
        connected("auto"),
    ):
        pass


def test_versions_that_differ_are_named():
    mine = code_versions()
    assert {"python", "numpy", "frugalrl", "frugalrl's sources"} <= set(mine)
    refuse_other_versions(mine, dict(mine), "there")
    with pytest.raises(ConfigError, match=r"there has numba none, here .*; numpy 1.0, here"):
        refuse_other_versions(mine, {**mine, "numpy": "1.0", "numba": ""}, "there")


@ray_group
def test_nodes_are_asked_for_their_versions(cluster, monkeypatch):
    import ray

    check_nodes(ray)
    monkeypatch.setattr(clusters, "code_versions", lambda: {**code_versions(), "numpy": "9.9"})
    with pytest.raises(ConfigError, match=r"node 127.0.0.1: .* has numpy .*, here 9.9"):
        check_nodes(ray)


@ray_group
def test_storage_that_nodes_cannot_write_is_told(cluster, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    words = ["compare", "Pendulum-v1", "--steps", "2000", "--methods", "baseline"]
    words += ["--backend", "ray", "--out", str(tmp_path / "out")]
    assert main([*words, "--storage", str(tmp_path / "file" / "below")]) == 2
    assert "cannot be written" in told(capsys)
    assert not (tmp_path / "out").exists()


@ray_group
def test_a_gpu_that_no_node_has_is_told_at_once(cluster, tmp_path, capsys):
    words = ["compare", "Pendulum-v1", "--steps", "2000", "--methods", "baseline"]
    words += ["--backend", "ray", "--out", str(tmp_path / "out")]
    assert main([*words, "--gpus", "0.5"]) == 2
    assert "a run needs 0.5 GPU, but no node of the cluster has more than 0;" in told(capsys)
    for wrong in ("-1", "1.5", "nan"):
        assert main([*words, "--gpus", wrong]) == 2
        assert f"gpus={float(wrong)} must be a share from 0 to 1" in told(capsys)
    assert not (tmp_path / "out").exists()


def test_options_of_ray_without_ray_are_told(tmp_path, capsys):
    words = ["compare", "Pendulum-v1", "--out", str(tmp_path / "out")]
    for option in (["--address", "auto"], ["--storage", "s3://b"], ["--gpus", "0.5"]):
        assert main([*words, *option]) == 2
        assert f"{option[0]} {option[1]} has no effect" in told(capsys)
    words = ["train", "Pendulum-v1", "--out", str(tmp_path / "out")]
    for option in (["--address", "auto"], ["--edge-filter"]):
        assert main([*words, *option]) == 2
        assert f"{option[0]}" in told(capsys)
    assert main([*words, "--actors", "-1"]) == 2
    assert "--actors -1" in told(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "config", "message"),
    [
        ({"actors": 0}, {}, "actors=0"),
        ({"actors": 1.5}, {}, "actors=1.5"),
        ({"fragment_steps": 0}, {}, "fragment_steps=0"),
        ({"in_flight": 0}, {}, "in_flight=0"),
        ({"publish_updates": -1}, {}, "publish_updates=-1"),
        ({"edge_refresh": 2.0}, {}, "edge_refresh=2.0 is out of range; use a share from 0 to 1"),
        ({"edge_refresh": "half"}, {}, "edge_refresh='half' is no number"),
        ({"edge_filter": True}, {}, "edge_filter needs the frugal filter, got admission='none'"),
        ({}, {"workers": "async"}, "workers='async'"),
        ({}, {"normalize": "obs"}, "normalize='obs'"),
        ({}, {"n_step": 3}, "n_step=3"),
    ],
)
def test_settings_that_cannot_work_are_told(settings, config, message, tiny):
    with pytest.raises(ConfigError, match=message):
        check_settings(tiny(**config), ActorSettings(**{"actors": 1, **settings}))


def test_numpys_numbers_are_written_as_pythons(tiny):
    given = ActorSettings(np.int64(2), in_flight=np.uint8(3), edge_refresh=np.float32(0.5))
    settings = check_settings(tiny(), given)
    assert json.loads(json.dumps(asdict(settings))) == asdict(given)


@ray_group
def test_what_a_run_refuses_is_refused_with_actors_too(cluster, tiny, tmp_path):
    with pytest.raises(ConfigError, match="batch_size"):
        train(tiny(batch_size=10**6, out=tmp_path / "run"), ActorSettings(1))
    assert not (tmp_path / "run").exists()


def test_nothing_else_imports_ray():
    import frugalrl

    root = os.path.dirname(frugalrl.__file__)
    found = subprocess.run(
        ["grep", "-rlE", r"^\s*(import|from) ray\b", root, "--include=*.py"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert {os.path.basename(os.path.dirname(path)) for path in found} == {"distributed"}
