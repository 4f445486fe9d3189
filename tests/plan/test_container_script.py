"""Containers where a run starts: what only that machine knows of them, and how they are stopped, found and removed."""

import os
import resource
import subprocess
import sys

import msgspec
import pytest
from support import boxed, export_run, gpu, inside, make_executable, plain_environment, plan, profile, run_launch_script

from tui_train.plan.render.script.launch_script import render_launch_script
from tui_train.runner.containers import container
from tui_train.runner.run_folder.supervisor_plan import SupervisorPlan
from tui_train.runner.system import other_programs
from tui_train.runner.system.refused import Refused

NAME = "tui-train-20261122-101010-7-ab12cd-1"
MARK = "20261122-101010-7-ab12cd"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return what puts an engine on PATH that notes what it is asked, and then does what this shell code says."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HOME", raising=False)

    def put(name="docker", does=""):
        make_executable(folder / name, f'#!/bin/bash\necho "$*" >> {tmp_path}/asked\n{does}\n')

        def asked():
            file = tmp_path / "asked"
            return file.read_text().splitlines() if file.exists() else []

        return asked

    return put


def planned(engine="docker", image="nemo:1", **more):
    return SupervisorPlan(engine=engine, image=image, **more)


def prepared(tmp_path, engine="docker", **more):
    return container.prepare_container_variables(planned(engine, **more), str(tmp_path / "run"))


# ---- what launch.sh is told


def test_docker_is_told_who_you_are_and_what_to_mount(tmp_path, engine):
    asked = engine("docker", "case $1 in info) echo '[name=seccomp]' ;; esac")
    folder = tmp_path / "out put"
    assert prepared(tmp_path, folders=(str(folder),)) == {
        "TUI_TRAIN_CONTAINER_USER": f"--user={os.getuid()}:{os.getgid()}",
        "TUI_TRAIN_MEMLOCK": "-1",
        "TUI_TRAIN_RUN_MOUNT": f"--mount=type=bind,src={tmp_path}/run,dst={tmp_path}/run",
        "TUI_TRAIN_CACHE_MOUNT": f"--mount=type=bind,src={tmp_path}/cache/tui-train/container,dst=/cache",
        "TUI_TRAIN_HUGGING_FACE_MOUNT": f"--mount=type=bind,src={tmp_path}/cache/huggingface,dst=/cache/huggingface",
        "TUI_TRAIN_REMOVE": "--rm=false",
    }
    assert folder.is_dir()
    assert (tmp_path / "cache/tui-train/container/huggingface").is_dir()
    assert not [words for words in asked() if words.startswith("pull")]


def test_hugging_faces_own_folder_and_a_home_are_found(tmp_path, engine, monkeypatch):
    engine("docker")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / 'hub, "1"'))
    told = prepared(tmp_path)
    assert f"src={tmp_path}/home/.cache/tui-train/container," in told["TUI_TRAIN_CACHE_MOUNT"]
    hub = str(tmp_path / 'hub, ""1""')
    assert told["TUI_TRAIN_HUGGING_FACE_MOUNT"] == f'--mount=type=bind,"src={hub}",dst=/cache/huggingface'


def test_a_docker_without_roots_rights_is_its_user_and_locks_no_more_than_you(tmp_path, engine):
    engine("docker", "case $1 in info) echo '[name=seccomp name=rootless]' ;; esac")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 19, 1 << 19));"
        "import tui_train.runner.containers.container as c; import tui_train.runner.run_folder.supervisor_plan as p;"
        f"told = c.prepare_container_variables(p.SupervisorPlan(engine='docker', image='x'), {str(tmp_path)!r});"
        "print(told['TUI_TRAIN_CONTAINER_USER'], told['TUI_TRAIN_MEMLOCK'])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "--user=0:0 524288\n"


def test_podman_keeps_your_number_where_it_has_no_roots_rights(tmp_path, engine, monkeypatch):
    engine("podman")
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    for user, words in ((0, (f"--user=0:{os.getegid()}", "-1")), (1000, ("--userns=keep-id", str(limit)))):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        told = prepared(tmp_path, "podman")
        assert (told["TUI_TRAIN_CONTAINER_USER"], told["TUI_TRAIN_MEMLOCK"]) == words
    assert told["TUI_TRAIN_RUN_MOUNT"] == f"--volume={tmp_path}/run:{tmp_path}/run"


def test_apptainer_has_no_container_that_outlives_it(tmp_path, engine):
    asked = engine("apptainer")
    (tmp_path / "an image.sif").touch()
    told = prepared(tmp_path, "apptainer", image=str(tmp_path / "an image.sif"))
    assert told["TUI_TRAIN_CACHE_MOUNT"] == f"--home={tmp_path}/cache/tui-train/container:/cache"
    assert set(told) == {"TUI_TRAIN_RUN_MOUNT", "TUI_TRAIN_CACHE_MOUNT", "TUI_TRAIN_HUGGING_FACE_MOUNT"}
    assert asked() == []
    assert container.container_name("apptainer", MARK, 1) == ""
    assert container.container_name("docker", MARK, 1) == NAME


@pytest.mark.parametrize(
    ("kind", "folder", "said"),
    [
        ("docker", "a\r\nb", "docker has no way to mount"),
        ("podman", "a:b,c", "choose a folder without colons, commas and quotes"),
        ("podman", 'a:"', "podman has no way to mount"),
        ("apptainer", "a\r\nb", "choose a folder without line breaks"),
    ],
)
def test_a_folder_that_no_word_mounts_is_refused(tmp_path, engine, kind, folder, said):
    engine(kind)
    (tmp_path / "i.sif").touch()
    with pytest.raises(Refused) as refused:
        container.prepare_container_variables(planned(kind, str(tmp_path / "i.sif")), str(tmp_path / folder))
    assert (refused.value.code, said in refused.value.message) == (69, True), refused.value.message
    assert "\n" not in refused.value.message


def test_apptainers_home_is_refused_with_a_comma(tmp_path, engine, monkeypatch):
    engine("apptainer")
    (tmp_path / "i.sif").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a,b"))
    with pytest.raises(Refused, match="set XDG_CACHE_HOME to a folder without : and ,"):
        prepared(tmp_path, "apptainer", image=str(tmp_path / "i.sif"))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, engine):
    engine("docker")
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot make the folder") as refused:
        prepared(tmp_path, folders=(str(tmp_path / "file/out"),))
    assert refused.value.code == 73


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("case $1 in image) exit 1 ;; esac", "the image nemo:1 is not on this machine: docker pull nemo:1"),
        ("echo a; echo Cannot connect >&2; exit 1", "docker does not answer: Cannot connect"),
        ("exec sleep 60", "docker does not answer: no word in"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, engine, monkeypatch, does, said):
    monkeypatch.setattr(container, "_ENGINE_ANSWER_SECONDS", 0.3 if "sleep" in does else 60.0)
    engine("docker", does)
    with pytest.raises(Refused) as refused:
        prepared(tmp_path)
    assert (refused.value.code, said in refused.value.message) == (69, True), refused.value.message


# ---- a container by its name


def test_it_is_asked_to_stop_again_while_its_client_lives(engine, tmp_path):
    """The engine may still be making it."""
    asked = engine("docker", f"[ $(grep -c stop {tmp_path}/asked) -ge 3 ] && [ $4 = {NAME} ]")
    container.stop_container("docker", NAME, 7, lambda: True)
    assert asked() == [f"stop -t 7 {NAME}"] * 3
    container.stop_container("docker", "gone", 7)
    assert len(asked()) == 4


def test_it_is_removed_for_good(engine, tmp_path):
    """What its killed client asked for may be made after the first look."""
    asked = engine("docker", f"case $1 in container) n=$(grep -c rm {tmp_path}/asked); [ $n -eq 2 ] ;; esac")
    container.remove_container("docker", NAME)
    assert [words.split()[0] for words in asked()] == ["rm", "container"] * 4


@pytest.mark.whole
def test_an_engine_that_restarts_is_waited_for(engine, tmp_path):
    engine("docker", f"[ -e {tmp_path}/back ] || exit 1; echo true 0")
    alive = []

    def lives():
        alive.append(1)
        if len(alive) == 2:
            (tmp_path / "back").touch()
        return True

    assert container.must_rejoin_container("docker", NAME, 1, lives)
    assert len(alive) == 2


@pytest.mark.parametrize(
    ("does", "alive"), [("echo false 1", True), ("case $1 in container) exit 1 ;; esac", True), ("exit 1", False)]
)
def test_a_container_that_has_ended(engine, does, alive):
    engine("docker", does)
    assert not container.must_rejoin_container("docker", NAME, 1, lambda: alive)


def test_whoever_is_to_stop_waits_for_no_engine(engine, monkeypatch, tmp_path):
    engine("docker", f"sleep 60; touch {tmp_path}/answered")
    monkeypatch.setattr(other_programs, "is_interrupted", lambda: True)
    assert container.must_rejoin_container("docker", NAME, 1, lambda: True)
    assert not (tmp_path / "answered").exists()


@pytest.mark.parametrize(
    ("state", "code", "outlives"), [("false 7", 7, False), ("false 7", 137, True), ("true 0", 1, True)]
)
def test_a_container_is_rejoined_where_its_client_does_not_tell_its_end(engine, state, code, outlives):
    engine("docker", f"echo {state}")
    assert container.must_rejoin_container("docker", NAME, code, lambda: True) is outlives


def test_what_an_earlier_start_left_is_named_or_removed(engine):
    """The filter of an engine is an expression that it finds anywhere in a name."""
    other = f"mine-{NAME}"
    asked = engine(
        "podman",
        f"case $* in 'ps -a'*) printf '%s\\n' {NAME} {NAME}2 {other} ;; ps*) printf '%s\\n' {NAME} {other} ;;"
        " *ExitCode*) echo false 0 ;; esac",
    )
    assert container.remove_ended_containers_and_list_running("podman", MARK) == (NAME,)
    assert [words for words in asked() if words.startswith("rm")] == [f"rm {NAME}2"]
    assert container.remove_ended_containers_and_list_running("apptainer", MARK) == ()


# ---- the whole of it


def test_a_supervised_container_is_kept_until_its_last_line_is_written_down(tmp_path, engine):
    does = f"""case $1 in
run) echo hello; env > {tmp_path}/environment; printf '%s\\n' "$@" > {tmp_path}/words; exit 5 ;;
container) case "$* " in *ExitCode*) [ ! -e {tmp_path}/gone ] && echo false 5 ;; *Running*) echo false ;;
  *) [ ! -e {tmp_path}/gone ] ;; esac ;;
rm) cat {tmp_path}/run/attempt-1.log > {tmp_path}/written; touch {tmp_path}/gone ;;
esac"""
    asked = engine("docker", does)
    run, _ = export_run(tmp_path / "run", profile(inside()), boxed())
    done = run_launch_script(
        run, env=plain_environment(PATH=os.environ["PATH"], XDG_CACHE_HOME=str(tmp_path / "cache"))
    )
    assert done.returncode == 5, done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    (name,) = (word.removeprefix("--name=") for word in words if word.startswith("--name="))
    (began,) = (event for event in run.events() if event.event == "attempt_started")
    assert (began.engine, began.container) == ("docker", name)
    assert "--rm=false" in words
    assert f"rm -f {name}" in asked()
    assert (tmp_path / "written").read_text() == "hello\n"
    assert f"TUI_TRAIN_RUN_ID={run.events()[0].mark}" in (tmp_path / "environment").read_text().splitlines()


def test_apptainer_trains_in_a_job_on_the_gpus_that_slurm_gives_it():
    here = boxed("apptainer", "/shared/i.sif", gpus=[gpu(0), gpu(1)])
    chosen = profile(inside("apptainer", "/shared/i.sif"))
    passed = '${CUDA_VISIBLE_DEVICES:+"APPTAINERENV_CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"}'
    assert passed in render_launch_script(plan(chosen, msgspec.structs.replace(here, scheduler="slurm")))
    assert passed not in render_launch_script(plan(chosen, here))
