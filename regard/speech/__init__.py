"""Speech: from sound to text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from regard.errors import UsageError
from regard.result import Failed
from regard.speech.results import Transcript, save_each
from regard.verbs import Bound, Files, ModelLike, Precision, verb

SoundRate = Annotated[int, Bound(1, 384_000, "1 to 384,000 Hz")]
RawFormat = Literal["u8", "s8", "s16le", "s24le", "s32le", "f32le"]
"""How a stream without header writes a sample: signed, unsigned or float, bits, low byte first."""


@verb
def transcribe(
    files: Files,
    *,
    model: ModelLike,
    language: str | None = None,
    task: Literal["transcribe", "translate"] = "transcribe",
    out: str | Path | None = None,
    rate: SoundRate | None = None,
    format: RawFormat | None = None,
    precision: Precision = "auto",
) -> Transcript | Iterator[Transcript | Failed]:
    """What is said in sound files, with the times of sentences and words.

    Where nobody speaks, the text is empty. A file that cannot be read is named, and the others go
    on. Sound of any length: up to 30 s are read at once, as transformers does; what is longer goes
    window by window, and lies in a temporary file meanwhile, not in memory.

    Args:
        files: WAV, FLAC or others that libsndfile knows, of any rate; - is stdin.
        model: the folder of a Whisper model, of one that writes letters (CTC: wav2vec 2.0, HuBERT,
            `train sound --transcripts`), or an opened Kit.
        language: what is spoken, such as fr, for a model of many languages (it listens for it).
        task: transcribe writes the language that is spoken, translate English.
        out: write it too: .txt, .srt, .vtt or .json; of several files {} becomes each one's name.
        rate: samples a second of raw sound, which has no header to say so.
        format: of raw sound, which is mono: how a sample is written, such as s16le.
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.transcribe("talk.flac", model="folder").words[0]
        $ regard transcribe talk.flac --model folder --out talk.srt
        $ regard transcribe *.wav --model folder --language fr --task translate --json
        $ arecord -r 16000 | regard transcribe - --model folder --rate 16000 --format u8
    """
    from regard.files import check_places
    from regard.loading import open_kit
    from regard.speech.long_form import Transcriber
    from regard.speech.sound_classes import SOUND_RUN, writes_letters

    several = files if isinstance(files, list) else [files]
    doing = "transcribing"
    if (rate is None) != (format is None):
        problem = "raw sound without its rate" if rate is None else "a rate without a format"
        expected = "both or, for files with a header, none"
        raise UsageError(doing, problem, expected, "--rate, --format")
    if out is not None and len(several) > 1 and "{}" not in str(out):
        problem = f"{len(several)} files and --out {out}"
        raise UsageError(doing, problem, "a name for each", "--out '{}.srt'")
    check_places(out)
    if out is not None and Path(out).suffix not in (".txt", ".srt", ".vtt", ".json"):
        raise UsageError(doing, f"--out {out}", "a name that ends in .txt, .srt, .vtt or .json")
    raw = None if rate is None or format is None else (rate, format)
    kit = open_kit(model, precision, text=False)
    if not writes_letters(kit):
        transcripts = Transcriber(kit, language, task).run(several, raw)
    elif language is None and task == "transcribe":
        transcripts = SOUND_RUN.transcribe(kit, several, raw)
    else:
        problem = "a language, or a task, with a model that writes letters"
        raise UsageError(doing, problem, "neither: it writes what it was trained on")
    transcripts = save_each(transcripts, out)
    if isinstance(files, list):
        return transcripts
    (transcript,) = transcripts
    if isinstance(transcript, Failed):
        raise transcript.error
    return transcript
