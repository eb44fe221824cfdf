"""A rule that a visitor types: two functions in JavaScript. The browser runs them in an interpreter."""

from surelock.decoding.compute import ComputeRule
from surelock.decoding.settings import setting
from surelock.decoding.state import Slots, State
from surelock.values import frozen

MOST_CODE = 4000  # characters
#: The text that the page's editor has at first.
EXAMPLE = """\
// Which positions does the next step compute? Those that were left out the longest.
function rows({ active, length, computed_at }) {
  const waiting = [...active].sort((a, b) => computed_at[a] - computed_at[b]);
  return waiting.slice(0, Math.ceil(0.3 * length));
}

// Which positions are never computed again? None.
function after() {
  return [];
}
"""


@frozen
class OwnRule(ComputeRule):
    """A rule in JavaScript. Python reads and writes it in traces but cannot run it: `rows` raises ValueError.

    code: JavaScript text with the functions `rows` and `after`; docs/page.md describes their argument.
    """

    kind = "own"
    label = "A rule of your own"
    sentence = "Computes the positions that a typed rule chooses."
    locks = True

    code: str = setting(
        "code",
        EXAMPLE,
        "Your rule",
        "Two functions in JavaScript: rows chooses what a step computes, after what locks for good.",
        high=MOST_CODE,
    )

    def rows(self, state: State, active: Slots) -> Slots:
        raise ValueError(
            "compute 'own' is a rule in JavaScript: it runs in a browser alone, on the page"
        )
