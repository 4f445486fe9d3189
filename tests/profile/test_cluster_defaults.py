"""The file of defaults for clusters: a site's and a user's, below what a profile chooses."""

import pytest
from support import profile

from tui_train.base.errors import BadInput
from tui_train.profile.cluster_defaults import with_cluster_defaults


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the file of a user or of the machine."""
    folders = {"user": tmp_path / "home", "site": tmp_path / "etc"}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folders["user"]))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(folders["site"]))

    def write(whose, text):
        file = folders[whose] / "tui-train" / "cluster.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


def test_without_a_file_nothing_is_chosen(write):
    assert with_cluster_defaults(profile()) == profile()


def test_a_profile_comes_before_its_user_and_both_before_the_site(write):
    write("site", '[cluster]\nqueue = "site"\nmemory = "8Gi"\ntolerations = ["gpu"]\ncpus = 4\n')
    write("user", '[cluster]\nqueue = "user"\nmemory = "16Gi"\n')
    found = with_cluster_defaults(profile({"cluster.queue": "own"})).cluster
    assert (found.queue, found.memory, found.cpus, found.tolerations) == ("own", "16Gi", 4, ("gpu",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cluster]\nqeue = 'a'\n", "cluster.qeue is not a key"),
        ("[cluster]\ncpus = 'a'\n", "cpus"),
        ("[cluster]\ncpus = -1\n", "cluster.cpus is -1"),
        ("[recipe]\nsteps = 5\n", "recipe.steps is not a default of clusters"),
        ("queue = 'a'\n", "queue is not a key"),
    ],
)
def test_a_wrong_file_is_named(write, text, said):
    write("site", text)
    with pytest.raises(BadInput) as refused:
        with_cluster_defaults(profile())
    assert said in refused.value.message
    assert refused.value.remedy
