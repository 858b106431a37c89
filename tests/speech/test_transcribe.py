"""Transcription against transformers on tiny random Whisper models, and what can go wrong."""

import io
import json
import math
import sys

import numpy as np
import pytest
import soundfile
import torch
from tokenizers import Tokenizer
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

import regard
from regard.cli.main import main
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, UsageError
from regard.result import Failed
from regard.speech import long_form, time_warping
from regard.speech.long_form import split_segments, time_pairs
from regard.speech.results import SpokenSegment, SpokenWord, Transcript
from tests.speech.tiny_whisper import save_whisper, sweep

SECONDS = (0.4, 1.0, 2.35, 3.7)  # a window is one second


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    base = tmp_path_factory.mktemp("whisper")
    paths = []
    for number, seconds in enumerate(SECONDS):
        paths.append(str(base / f"{number}.wav"))
        soundfile.write(paths[-1], sweep(seconds, number), 16000, "FLOAT")
    return save_whisper(base / "many", times=0.1), save_whisper(base / "english", ()), paths


@pytest.fixture
def greedy(monkeypatch):
    """No gate and no second attempt: what transformers does by itself."""
    monkeypatch.setattr(long_form, "QUIET", 2.0)
    monkeypatch.setattr(long_form, "SILENT", 2.0)
    monkeypatch.setattr(long_form, "HARDLY", -math.inf)
    monkeypatch.setattr(long_form, "REPEATED", math.inf)


def by_transformers(folder, path, **how):
    """Segments (start, end, text) of long sound, or the text of short sound."""
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    end = model.generation_config.eos_token_id
    extract = WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    samples, _ = soundfile.read(path, dtype="float32")
    long = len(samples) > 16000
    more = dict(truncation=False, padding="longest") if long else {}
    mel = extract(samples, sampling_rate=16000, return_tensors="pt", **more).input_features
    more = dict(return_timestamps=True, return_segments=True) if long else {}
    answer = model.generate(mel, **more, **how)
    if not long:
        return tokenizer.decode([t for t in answer[0].tolist() if t < end]).strip()
    return [
        (
            min(round(float(each["start"]), 2), len(samples) / 16000),
            min(round(float(each["end"]), 2), len(samples) / 16000),
            tokenizer.decode([t for t in each["tokens"].tolist() if t < end]).strip(),
        )
        for each in answer["segments"][0]
    ]


@pytest.mark.filterwarnings("ignore")  # transformers' own
@pytest.mark.parametrize(
    "how", [{"task": "transcribe"}, {"language": "de", "task": "translate"}, {}]
)
def test_equals_transformers(whisper, greedy, how):
    many, english, paths = whisper
    folder, paths = (many, paths) if how else (english, paths[2:])
    transcripts = list(regard.transcribe(paths, model=folder, **how))  # one batch
    compared = 0
    for path, transcript in zip(paths, transcripts, strict=True):
        expected = by_transformers(folder, path, **how)
        if isinstance(expected, str):
            assert transcript.text == expected and len(expected) > 3
            continue
        segments = [(s.start, s.end, s.text) for s in transcript.segments]
        assert segments == [s for s in expected if s[2]]
        compared += len(segments)
        assert transcript.text.replace(" ", "") == "".join(s[2] for s in expected).replace(" ", "")
    assert compared >= 6
    spoken = {t.language for t in transcripts}
    assert spoken == ({"de"} if "language" in how else {"fr"} if how else {"en"})


def test_alone_as_in_a_batch(whisper, greedy):
    folder, _, paths = whisper
    together = [each.to_dict() for each in regard.transcribe(paths, model=folder)]
    alone = [regard.transcribe(path, model=folder).to_dict() for path in paths]
    assert together == alone
    for each, seconds in zip(together, SECONDS, strict=True):
        assert each["seconds"] == pytest.approx(seconds, abs=0.01)
        for rows in (each["words"], each["segments"]):
            times = [(row["start"], row["end"]) for row in rows]
            assert times and all(0 <= a <= b <= seconds + 0.01 for a, b in times)
        starts = [word["start"] for word in each["words"]]
        assert seconds > 1 or starts == sorted(starts)


def test_times_stand_in_pairs_as_in_transformers(whisper):
    folder, *_ = whisper
    kit = regard.load(folder)
    config = WhisperForConditionalGeneration.from_pretrained(folder).generation_config
    zero, size = config.no_timestamps_token_id + 1, kit.model.config.head.size
    draw = np.random.default_rng(0)
    for latest in (None, 3):
        config.max_initial_timestamp_index = latest
        theirs = WhisperTimeStampLogitsProcessor(config, begin_index=0)
        ours = time_pairs(zero, config.eos_token_id, 50 if latest is None else latest)
        for length in range(7):
            rows = []
            for _ in range(20):  # words, or times that do not go back
                words = draw.integers(0, config.eos_token_id, length)
                times = zero + np.sort(draw.integers(0, 40, length))
                rows.append(np.where(draw.random(length) < 0.6, times, words))
            history = torch.from_numpy(np.stack(rows)).long()
            logits = 3 * torch.randn(20, size, generator=torch.Generator().manual_seed(length))
            expected, found = theirs(history, logits), ours(logits, history)
            assert torch.equal(expected.isinf(), found.isinf())
            assert torch.equal(expected[~expected.isinf()], found[~found.isinf()])


def test_segments_and_the_next_window():
    zero = 100
    assert split_segments([100, 1, 2, 110], zero, 80) == ([(0, 10, [100, 1, 2, 110])], 80)
    assert split_segments([1, 2], zero, 81) == ([(0, 41, [1, 2])], 81)
    pair = [100, 1, 110, 112, 2, 130]
    parts = [(0, 10, [100, 1, 110]), (12, 30, [112, 2, 130])]
    assert split_segments(pair, zero, 80) == (parts, 80)  # ends with a time: all is heard
    cut = [100, 1, 110, 110, 2, 3]  # ends inside a segment, which is heard again from 110 on
    assert split_segments(cut, zero, 80) == (parts[:1], 20)
    assert split_segments([], zero, 80) == ([(0, 40, [])], 80)


def test_warping_takes_the_cheapest_way():
    def plain(cost):  # OpenAI's loops
        rows, columns = cost.shape
        total, came = np.full((rows + 1, columns + 1), np.inf), {}
        total[0, 0] = 0
        for j in range(1, columns + 1):
            for i in range(1, rows + 1):
                both, up, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
                step = 0 if both < up and both < left else 1 if up < both and up < left else 2
                total[i, j] = cost[i - 1, j - 1] + (both, up, left)[step]
                came[i, j] = step
        entered, i, j = [0] * rows, rows, columns
        while i and j:
            entered[i - 1] = j - 1
            step = came[i, j]
            i, j = i - (step != 2), j - (step != 1)
        return entered

    draw = np.random.default_rng(0)
    for rows, columns in ((1, 1), (1, 9), (9, 1), (5, 40), (30, 12), (13, 13)):
        for cost in draw.standard_normal((5, rows, columns)):  # no two ways cost the same
            assert time_warping.warp(cost) == plain(cost)
    stairs = np.ones((4, 40))
    for row in range(4):
        stairs[row, 10 * row : 10 * row + 10] = 0
    assert time_warping.warp(stairs) == [0, 10, 20, 30]


def test_words_have_their_marks_and_whole_characters(whisper):
    kit = regard.load(whisper[0])
    tokens = kit.tokenizer.encode(' Où est "Zoé", là? 3.5 €')
    words = time_warping.split_words(kit, tokens, True)
    assert [word.strip() for word, *_ in words] == ["Où", "est", '"Zoé",', "là?", "3.5", "€"]
    for word, begin, end in words:  # marks that close a word take no time
        assert kit.decode_text(tokens[begin:end]) == word.rstrip('",?')
    words = time_warping.split_words(kit, kit.tokenizer.encode("今日は。"), False)
    assert [word for word, *_ in words] == ["今", "日", "は。"]


def test_silence_has_no_words(whisper, monkeypatch):
    folder, _, paths = whisper
    monkeypatch.setattr(long_form, "SILENT", -1.0)  # this model has not learned what silence is
    for transcript in regard.transcribe(paths, model=folder):
        assert (transcript.text, transcript.words, transcript.segments) == ("", [], [])
    monkeypatch.setattr(long_form, "SILENT", 2.0)
    monkeypatch.setattr(long_form, "QUIET", -1.0)  # unlikely texts are taken for silence
    assert regard.transcribe(paths[0], model=folder).text == ""
    monkeypatch.setattr(long_form, "LIKELY", -math.inf)
    monkeypatch.setattr(long_form, "REPEATED", math.inf)
    assert regard.transcribe(paths[0], model=folder).text != ""


def test_poor_texts_are_drawn_again(whisper, monkeypatch):
    folder, _, paths = whisper
    drawn = []

    def noted(temperature, **how):
        drawn.append(temperature)
        return SampleConfig(temperature, **how)

    monkeypatch.setattr(long_form, "SampleConfig", noted)
    monkeypatch.setattr(long_form, "HARDLY", math.inf)  # all are poor: the first stays
    first = regard.transcribe(paths[0], model=folder).text
    assert drawn == [*long_form.TEMPERATURES]
    monkeypatch.setattr(long_form, "HARDLY", -math.inf)
    monkeypatch.setattr(long_form, "REPEATED", math.inf)
    assert regard.transcribe(paths[0], model=folder).text == first
    poor = iter([False, True, True, False])  # at the gate; then the first two attempts
    monkeypatch.setattr(long_form.Transcriber, "is_poor", lambda *args: next(poor))
    monkeypatch.setattr(long_form, "QUIET", -1.0)
    drawn.clear()
    assert regard.transcribe(paths[0], model=folder).text != first
    assert drawn == [0.2, 0.4]


def test_raw_sound_from_stdin(whisper, greedy, monkeypatch, capsys):
    folder, _, paths = whisper
    samples, _ = soundfile.read(paths[2], dtype="float32")
    expected = regard.transcribe(paths[2], model=folder)
    whole = np.round(samples * 32768).clip(-32768, 32767).astype("<i2")
    forms = {"f32le": samples.astype("<f4").tobytes(), "s16le": whole.tobytes()}
    forms["s32le"] = (whole.astype("<i4") << 16).tobytes()
    forms["s24le"] = (whole.astype("<i4") << 8).view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    forms["u8"] = np.round(samples * 127 + 128).astype(np.uint8).tobytes()
    forms["s8"] = np.round(samples * 127).astype(np.int8).tobytes()
    texts = {}
    for form, data in forms.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        line = ["transcribe", "-", "--model", str(folder), "--rate", "16000", "--format", form]
        assert main([*line, "--json"]) == 0
        texts[form] = json.loads(capsys.readouterr().out)
    assert texts["f32le"]["text"] == expected.text
    assert texts["s16le"]["text"] == texts["s24le"]["text"] == texts["s32le"]["text"]
    assert {each["seconds"] for each in texts.values()} == {expected.seconds}
    data = io.BytesIO()
    soundfile.write(data, np.stack((samples, samples), 1), 16000, "FLOAT", format="WAV")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.getvalue())))
    assert regard.transcribe("-", model=folder).text == expected.text
    with pytest.raises(UsageError, match="without its rate"):
        regard.transcribe("-", model=folder, format="s16le")
    with pytest.raises(UsageError, match="rate = 999999"):
        regard.transcribe(paths[0], model=folder, format="s16le", rate=999_999)


def test_bad_files_are_named_and_the_rest_goes_on(whisper, greedy, tmp_path, capsys):
    folder, _, paths = whisper
    (tmp_path / "broken.wav").write_bytes(b"RIFF, but no sound")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16000)
    files = [paths[0], tmp_path / "broken.wav", tmp_path / "empty.wav", "nowhere.wav", paths[1]]
    answers = list(regard.transcribe(files, model=folder))
    bad = [answer for answer in answers if isinstance(answer, Failed)]
    assert [str(f) in str(b.error) for f, b in zip(files[1:4], bad, strict=True)] == [True] * 3
    assert [answer.file for answer in answers if isinstance(answer, Transcript)] == paths[:2]
    assert main(["transcribe", *map(str, files), "--model", str(folder), "--json"]) == 3
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 5 and said.err.count("error: reading") == 3
    with pytest.raises(DataError, match="no such file"):
        regard.transcribe("nowhere.wav", model=folder)
    for name in ("talk.csv", "talk"):  # before the model is opened
        with pytest.raises(UsageError, match=r"ends in \.txt, \.srt, \.vtt or \.json"):
            regard.transcribe(paths[0], model="nowhere", out=tmp_path / name)
    with pytest.raises(DataError, match=r"a folder\n(.*\n)+.*/\*\.wav"):
        regard.transcribe(tmp_path, model=folder)


@pytest.mark.parametrize("rate", [8000, 44100, 192_000])
@pytest.mark.parametrize("form", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32"])
def test_any_rate_and_depth(whisper, greedy, tmp_path, rate, form):
    t = np.arange(rate // 2) / rate
    tone = np.stack((0.6 * np.sin(2 * np.pi * 440 * t), 0.2 * np.sin(2 * np.pi * 440 * t)), 1)
    soundfile.write(tmp_path / "tone.wav", tone, rate, form)
    from regard.data.sound import read_sound

    samples = read_sound(tmp_path / "tone.wav")
    expected = 0.4 * np.sin(2 * np.pi * 440 * np.arange(8000) / 16000)
    assert np.abs(samples.numpy() - expected)[200:-200].max() < 0.01
    assert regard.transcribe(tmp_path / "tone.wav", model=whisper[0]).seconds == 0.5


def test_forms_of_subtitles(whisper, greedy, tmp_path):
    folder, _, paths = whisper
    said = [SpokenSegment(0.0, 1.5, "One."), SpokenSegment(3599.999, 3725.25, "a --> b")]
    words = [SpokenWord("One.", 0.0, 1.5)]
    transcript = Transcript("x.wav", "One. a --> b", "en", 4000.0, said, words)
    transcript.save(tmp_path / "x.srt")
    srt = "1\n00:00:00,000 --> 00:00:01,500\nOne.\n\n"
    srt += "2\n00:59:59,999 --> 01:02:05,250\na → b\n"
    assert (tmp_path / "x.srt").read_text() == srt
    transcript.save(tmp_path / "x.vtt")
    assert (tmp_path / "x.vtt").read_text() == "WEBVTT\n\n" + srt.replace(",", ".")
    transcript.save(tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == "One. a --> b\n" == f"{transcript}\n"
    list(regard.transcribe(paths[:2], model=folder, out=tmp_path / "{}.json"))
    assert json.loads((tmp_path / "1.json").read_text())["file"] == paths[1]
    with pytest.raises(UsageError, match="2 files and --out"):
        regard.transcribe(paths[:2], model=folder, out=tmp_path / "x.srt")


def test_what_the_model_cannot_do(whisper, tmp_path):
    many, english, paths = whisper
    with pytest.raises(UsageError, match="language 'fe'"):
        regard.transcribe(paths[0], model=many, language="fe")
    with pytest.raises(UsageError, match="a model of one language"):
        regard.transcribe(paths[0], model=english, task="translate")
    with pytest.raises(UsageError, match="a Whisper model"):
        regard.transcribe(paths[0], model="fr-en")
