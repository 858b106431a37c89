"""Line budgets of the package (ARCHITECTURE section 2); exits 1 when one is exceeded.

    python tools/size.py

prints lines per folder and, in a git checkout, the change against main (on main: against HEAD).
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

FILE, CORE, PACKAGE = 400, 1500, 51_400  # lines at most
GOAL = 15_000  # for the package; printed beside its size, so that passing it is seen
ORACLE = "regard/core/reference.py"  # the executable specification does not count as core


def count(root: Path) -> dict[str, int]:
    """Lines of each Python file of the package, by its path from the root."""
    files = sorted((root / "regard").rglob("*.py"))
    return {
        file.relative_to(root).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in files
    }


def git(root: Path, *arguments: str) -> str | None:
    """What git prints, or None where there is no git, no repository or no such commit."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def count_before(root: Path) -> tuple[str, dict[str, int]] | None:
    """The commit to compare with and its lines of each file; None outside a git checkout."""
    if git(root, "rev-parse", "--show-prefix"):  # inside some other repository
        return None
    on_main = git(root, "symbolic-ref", "--short", "HEAD") == "main"
    base = "HEAD" if on_main or git(root, "rev-parse", "--verify", "main") is None else "main"
    if git(root, "rev-parse", "--verify", base) is None:
        return None
    counted = git(root, "grep", "-c", "", base, "--", "regard/*.py") or ""
    rows = (line.rsplit(":", 2) for line in counted.splitlines())  # HEAD:regard/errors.py:42
    return base, {path: int(lines) for _, path, lines in rows}


def by_folder(lines: dict[str, int]) -> Counter[str]:
    """Lines of each folder; core and its oracle apart."""
    folders: Counter[str] = Counter()
    for path, number in lines.items():
        folders[path if path == ORACLE else path.rpartition("/")[0]] += number
    return folders


def excess(lines: dict[str, int]) -> list[str]:
    """A sentence for each budget exceeded."""
    sums = [(path, number, FILE) for path, number in lines.items()]
    sums.append(("regard/core without reference.py", by_folder(lines)["regard/core"], CORE))
    sums.append(("the package", sum(lines.values()), PACKAGE))
    return [
        f"{name}: {number} lines, at most {most}" for name, number, most in sums if number > most
    ]


def main(root: Path) -> int:
    """Print the table; 1 when a budget is exceeded."""
    lines, before = count(root), count_before(root)
    now, then = by_folder(lines), by_folder(before[1]) if before else None
    print(f"{'folder':28}{'lines':>8}" + (f"{'change to ' + before[0]:>20}" if before else ""))
    for folder in sorted(now | (then or Counter())):
        change = f"{now[folder] - then[folder]:+20d}" if then is not None else ""
        print(f"{folder:28}{now[folder]:8d}{change}")
    total = f"{now.total() - then.total():+20d}" if then is not None else ""
    print(f"{'package (goal ' + str(GOAL) + ')':28}{now.total():8d}{total}")
    over = excess(lines)
    for sentence in over:
        print(f"too long: {sentence}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
