"""A publication in words: what would be sent where, and its card."""

from collections.abc import Callable, Iterator

from tui_train.actions.publish import CARD_FILE, Publication, hash_data_files
from tui_train.base.text import display_path, names_text, quantity, size_text, visible
from tui_train.profile.types import Profile
from tui_train.views.model_card import model_card_text
from tui_train.views.model_card_facts import read_model_card_facts

_MAX_NAMES_SHOWN = 8


def make_model_card(publication: Publication, on_hashing: Callable[[str], None]) -> str:
    """Return the card of a publication; `on_hashing` is told each file of data that is read for it. TuiTrainError."""
    profile = publication.run.read_profile() or Profile()
    data = hash_data_files(publication.run, profile, on_hashing)
    facts = read_model_card_facts(publication, profile, data)
    return model_card_text(facts, publication.hub.head, publication.hub.text)


def publication_lines(publication: Publication, card: str) -> Iterator[str]:
    """Yield what would be sent, where, and what becomes of what is there."""
    hub = publication.hub
    sizes = {**{file.name: file.size for file in publication.files}, CARD_FILE: len(card.encode())}
    width = max(map(len, sizes))
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
            yield f"{label}: {names_text([*map(visible, names)], _MAX_NAMES_SHOWN)}"
    if hub.exists and hub.private and publication.options.public:
        yield "The repository is private and stays so: change that in its settings on the Hub."
