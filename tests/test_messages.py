"""The snapshot of all messages."""

from difflib import unified_diff

from tests.messages import SNAPSHOT, sentences, snapshot


def test_messages_are_as_reviewed() -> None:
    kept, found = SNAPSHOT.read_text(encoding="utf-8"), snapshot()
    changes = unified_diff(
        kept.splitlines(), found.splitlines(), "reviewed", "now", n=0, lineterm=""
    )
    assert kept == found, "\n".join(("read, then run python -m tests.messages", *changes))


def test_a_sentence_has_the_names_of_its_values() -> None:
    source = '''
"""Words of a docstring are not said."""
raise ConfigError(
    f"encoder.width={self.width} does not divide into {heads}; "
    f"add --set encoder.width={nearest(self.width)} or {', '.join(b'all of these four words')}"
)
note("two-word note")
'''
    fixed = "encoder.width={width} does not divide into {heads}; add --set encoder.width={nearest}"
    assert list(sentences(source)) == [f"{fixed} or {{join}}"]
