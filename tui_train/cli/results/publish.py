"""`tui-train publish`: show what would be sent to the Hub, ask, and send it."""

import sys
from collections.abc import Iterator

import click
from msgspec import Struct

from tui_train.actions.publish import CARD_FILE, Publication, PublishedFile, PublishOptions, hash_data_files
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.text import display_path, names_text, quantity, size_text, visible
from tui_train.cli.printing import print_json
from tui_train.profile.types import Profile
from tui_train.runs import run_folders
from tui_train.views.model_card import WrittenModelCard, model_card_text
from tui_train.views.model_card_facts import read_model_card_facts

_MAX_NAMES = 8


class PublishAnswer(Struct, frozen=True, kw_only=True):
    """What is sent to a repository, what is replaced or kept there, the card, and where it is once `published`."""

    repo: str
    endpoint: str
    user: str
    exists: bool
    private: bool
    folder: str
    files: tuple[PublishedFile, ...]
    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    card: str
    published: bool
    url: str
    commit: str


def publish_and_report(  # noqa: PLR0913 - one for each option
    reference: str, repo: str, options: PublishOptions, *, dry_run: bool, confirmed: bool, as_json: bool
) -> None:
    """Show what a run's result would be on the Hub, and send it once that is confirmed."""
    if as_json and not (dry_run or confirmed):
        raise click.UsageError("--json needs --yes or --dry-run.")
    publication = Publication(run_folders.find_run_with_result(reference), repo, options)
    try:
        profile = publication.run.read_profile() or Profile()
        data = hash_data_files(publication.run, profile, lambda name: click.echo(f"hashing {name} …", err=True))
        written = WrittenModelCard(publication.hub.head, publication.hub.text)
        card = model_card_text(read_model_card_facts(publication, profile, data), written)
        if not as_json:
            for line in _plan_lines(publication, card):
                click.echo(line)
        try:
            publication.refuse_unusable_hub()
        except TuiTrainError as error:
            if not dry_run or as_json:
                raise
            click.echo(f"Nothing was sent. It would be refused: {error.message}. {error.remedy}", err=True)
            return
        url = commit = ""
        if not dry_run:
            if not confirmed:
                _confirm_publication(publication)
            url, commit = publication.send(card, lambda name: click.echo(f"sent {name}", err=True))
        if as_json:
            print_json(_publish_answer(publication, card, url, commit))
        elif url:
            click.echo(f"published: {url} ({'private' if publication.is_private else 'public'})")
    finally:
        publication.close()


def _confirm_publication(publication: Publication) -> None:
    if not sys.stdin.isatty():
        raise BadInput(
            "nothing was sent: there is no terminal to ask on", "Look at the list and the card, then send it: --yes"
        )
    click.confirm(f"Publish it, {'private' if publication.is_private else 'publicly, for all to see'}?", abort=True)


def _plan_lines(publication: Publication, card: str) -> Iterator[str]:
    """Yield what would be sent where, then the card."""
    hub = publication.hub
    sizes = {**{file.name: file.size for file in publication.files}, CARD_FILE: len(card.encode())}
    width = max(map(len, sizes))
    yield from map(visible, card.splitlines())
    yield ""
    yield f"from  {display_path(publication.weights.path)}, {publication.result.weights_origin_text}"
    if hub.problem:
        yield f"to    {visible(publication.repo)} on {visible(hub.endpoint)}"
    else:
        state = "exists" if hub.exists else "new"
        seen = "private" if publication.is_private else "public"
        yield f"to    {visible(publication.repo)} on {visible(hub.endpoint)}: {state}, {seen}; as {visible(hub.user)}"
    for name, size in sizes.items():
        yield f"  {visible(name):<{width}}  {size_text(size)}"
    yield f"{quantity(len(sizes), 'file')}, {size_text(sum(sizes.values()))}"
    for label, names in (
        ("replaced there", publication.replaced_repo_files),
        ("stays there", publication.kept_repo_files),
        ("not sent", publication.left_out),
    ):
        if names:
            yield f"{label}: {names_text([*map(visible, names)], _MAX_NAMES)}"
    if hub.exists and hub.private and publication.options.public:
        yield "The repository is private and stays so: change that in its settings on the Hub."


def _publish_answer(publication: Publication, card: str, url: str, commit: str) -> PublishAnswer:
    return PublishAnswer(
        repo=publication.repo,
        endpoint=publication.hub.endpoint,
        user=publication.hub.user,
        exists=publication.hub.exists,
        private=publication.is_private,
        folder=publication.weights.path,
        files=publication.files,
        replaced=publication.replaced_repo_files,
        kept=publication.kept_repo_files,
        left_out=publication.left_out,
        card=card,
        published=bool(url),
        url=url,
        commit=commit,
    )
