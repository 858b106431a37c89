"""What the verbs of this room return; no torch is loaded here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.files import write_whole
from regard.result import Failed, Grid, Result, Row


class SpokenWord(Row):
    """A word and when it is said, in seconds."""

    word: str
    start: float
    end: float


class SpokenSegment(Row):
    """A sentence, or what the model took for one piece, and when it is said, in seconds."""

    start: float
    end: float
    text: str


class Transcript(Result):
    """What is said in {file}."""

    file: str
    text: str
    """Empty where nobody speaks."""
    language: str
    """As asked for or heard, such as en."""
    seconds: float
    segments: list[SpokenSegment]
    words: list[SpokenWord]

    def parts(self) -> Iterator[str | Grid]:
        """The text on one line."""
        yield self.text

    def subtitles(self, form: str) -> str:
        """The segments as the text of an .srt or .vtt file."""
        mark, lines = "," if form == ".srt" else ".", [] if form == ".srt" else ["WEBVTT\n"]
        for number, segment in enumerate(self.segments, 1):
            clock = []
            for moment in (segment.start, segment.end):
                seconds, rest = divmod(round(1000 * moment), 1000)
                hours, minutes = seconds // 3600, seconds // 60 % 60
                clock.append(f"{hours:02}:{minutes:02}:{seconds % 60:02}{mark}{rest:03}")
            text = segment.text.replace("-->", "→")  # which would begin another one
            lines.append(f"{number}\n{' --> '.join(clock)}\n{text}\n")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write .txt, .srt or .vtt, or what every result can be."""
        form = Path(path).suffix
        if form not in (".txt", ".srt", ".vtt"):
            return super().save(path)
        text = self.text + "\n" if form == ".txt" else self.subtitles(form)
        write_whole(Path(path), text.encode())


def save_each(
    transcripts: Iterable[Transcript | Failed], out: str | Path | None
) -> Iterator[Transcript | Failed]:
    """The same, each written to a file too where that is asked for; {} becomes its own name."""
    for transcript in transcripts:
        if out is not None and isinstance(transcript, Transcript):
            transcript.save(str(out).replace("{}", Path(transcript.file).stem))
        yield transcript
