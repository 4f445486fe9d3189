"""`tui-train publish`: show what would be sent to the Hub, ask, and send it."""

import click
from msgspec import Struct

from tui_train.actions.publish import Publication, PublishedFile, PublishOptions
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.base.text import visible
from tui_train.cli import answers
from tui_train.cli.printing import print_json
from tui_train.runs import run_folders
from tui_train.views.publication import make_model_card, publication_lines


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
    publication = Publication(run_folders.find_run_or_checkpoint(reference), repo, options)
    try:
        card = make_model_card(publication, lambda name: click.echo(f"hashing {name} …", err=True))
        if not as_json:
            for line in (*map(visible, card.splitlines()), "", *publication_lines(publication, card)):
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
            how = "private" if publication.is_private else "publicly, for all to see"
            why = "nothing was sent: there is no terminal to ask on"
            refusal = BadInput(why, "Look at the list and the card, then send it: --yes")
            answers.confirm(f"Publish it, {how}?", refusal, yes=confirmed)
            url, commit = publication.send(card, lambda name: click.echo(f"sent {name}", err=True))
        if as_json:
            print_json(_publish_answer(publication, card, url, commit))
        elif url:
            click.echo(f"published: {url} ({'private' if publication.is_private else 'public'})")
    finally:
        publication.close()


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
