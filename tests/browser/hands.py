"""Two ways to use a lesson's card and the grids: a mouse, and a keyboard alone."""

from playwright.sync_api import Page

CARD = ".sl-lesson"
RANGE = f"{CARD} input[type=range]"
# the first that is not hidden
SHOWN = "surelock.stage.sides.find(({ canvas }) => canvas.clientWidth)"
CELL = """(cell) => {
  const { grid, canvas } = surelock.stage.sides.find(({ canvas }) => canvas.clientWidth);
  const [x, y, w, h] = grid.rect(cell);
  const top = canvas.getBoundingClientRect().top + y;
  scrollBy({ top: top - 240, behavior: "instant" });
  const at = canvas.getBoundingClientRect();
  return [at.left + x + w / 2, at.top + y + h / 2];
}"""


class Mouse:
    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, name: str) -> None:
        self.page.click(f"{CARD} >> role=button[name='{name}']")

    def choose(self, option: str) -> None:
        self.page.check(f"{CARD} input[value='{option}']")

    def slide(self, value: int) -> None:
        self.page.fill(RANGE, str(value))

    def pin(self, cells: list[int]) -> None:
        for cell in cells:
            self.page.mouse.click(*self.page.evaluate(CELL, cell))
        self.page.mouse.move(0, 0)


class Keys:
    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, name: str) -> None:
        inside = self.page.evaluate(f"document.activeElement.closest('{CARD}') !== null")
        self.to(f"now.textContent === '{name}'", "Tab" if inside else "Shift+Tab")
        self.page.keyboard.press("Enter")

    def choose(self, option: str) -> None:
        self.to("now.type === 'radio'")
        self.page.keyboard.press("Space")
        while self.page.evaluate("document.activeElement.value") != option:
            self.page.keyboard.press("ArrowDown")

    def slide(self, value: int) -> None:
        self.to("now.type === 'range'")
        self.page.keyboard.press("Home")
        self.page.keyboard.press("ArrowRight")  # an end where it stood already is no answer
        self.page.keyboard.press("ArrowLeft")
        while (left := value - int(self.page.evaluate("document.activeElement.value"))) > 0:
            self.page.keyboard.press("PageUp" if left >= 25 else "ArrowRight")

    def pin(self, cells: list[int]) -> None:
        self.to("now.matches('canvas.sl-grid')")
        columns = self.page.evaluate(f"{SHOWN}.grid.box.columns")
        for cell in cells:
            ways = [
                "Home",
                *["ArrowDown"] * (cell // columns),
                *["ArrowRight"] * (cell % columns),
                "Enter",
            ]
            for key in ways:
                self.page.keyboard.press(key)

    def to(self, condition: str, key: str = "Tab") -> None:
        """Press Tab until the focus is on what fulfils it."""
        for _ in range(90):
            if self.page.evaluate(f"((now) => {condition})(document.activeElement)"):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{key} does not come to {condition}")


Hands = Mouse | Keys
