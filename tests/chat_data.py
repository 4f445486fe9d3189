"""Data for fine-tuning: chat templates, a row of each format, and files of them."""

import json
import sys

from tui_train.facts.data.data_report import DataQuestion, probe_data

# What the answers of the tests end with, so that what is marked can be found in a text.
TURN_TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}\n%s{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
PLAIN_TEMPLATE = TURN_TEMPLATE.replace("%s", "{{ m.content }}</s>")
ANSWER_MARKING_TEMPLATE = TURN_TEMPLATE.replace(
    "%s",
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}"
    "{% else %}{{ m.content }}</s>{% endif %}",
)
USER_FIRST_TEMPLATE = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('a user must begin') }}{% endif %}" + PLAIN_TEMPLATE
)


def user_message(text):
    return {"role": "user", "content": text}


def assistant_message(text):
    return {"role": "assistant", "content": text}


CHAT_ROW = {
    "messages": [
        user_message("What is it?"),
        assistant_message("A fox.\nA quick one: 狐."),
        user_message("Sure?"),
        assistant_message("Yes"),
    ]
}
SYSTEM_CHAT_ROW = {"messages": [{"role": "system", "content": "s"}, *CHAT_ROW["messages"]]}
ROW_BY_FORMAT = {
    "messages": CHAT_ROW,
    "sharegpt": {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
    "alpaca": {"instruction": "Add", "input": "1 2", "output": "3"},
    "prompt_completion": {"prompt": "The sky is", "completion": " blue"},
    "text": {"text": "the quick brown fox"},
    "preference": {"prompt": "The sky is", "chosen": " blue", "rejected": " green"},
    "kto": {"prompt": "The sky is", "completion": " blue", "label": True},
}


def write_rows(path, rows):
    """A JSONL file of these rows."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def probe_files(*paths, python=sys.executable, **more):
    """The program's report on data files."""
    found = probe_data(str(python), DataQuestion(files=tuple(map(str, paths)), **more))
    assert not found.problem
    return found


def numbered_row(row, number):
    """A row of a format like another one."""
    return json.loads(json.dumps(row).replace("blue", f"blue {number}").replace("Yes", f"Yes {number}"))
