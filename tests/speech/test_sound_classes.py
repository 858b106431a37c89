"""Runs over clips: what they read, learn, keep and refuse; and what transformers makes of them."""

import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.data.example_store import leave_out
from regard.data.sound import read_sound
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.config import HeadConfig
from regard.model.model import Model
from regard.model.presets import llama, whisper
from regard.result import Failed
from regard.speech import sound_classes
from regard.speech.sound_classes import SOUND_RUN, SoundAugmentation
from regard.speech.sound_files import Hearing, find_clips, read_clips
from regard.train import SoundConfig

SMALL = dict(seconds=0.3, mels=32, patch=8, stride=6, dim=16, depth=1, heads=2, rows=8)
SMALL |= dict(mask_mels=4, pitch=0, reads="patches")
HERTZ = {"low": 300, "mid": 900, "high": 2700}


def clip(hertz, rate=16000, seed=0, seconds=0.3):
    """A tone with noise, of a random phase."""
    dice, time = np.random.default_rng(seed), np.arange(int(rate * seconds)) / rate
    tone = 0.4 * np.sin(2 * np.pi * hertz * time + dice.uniform(0, 6))
    return tone + dice.normal(0, 0.02, len(time))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Clips in the folders of three classes, at all rates, in all forms."""
    root = tmp_path_factory.mktemp("clips")
    forms = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT")
    for name, hertz in HERTZ.items():
        (root / name).mkdir()
        for n in range(12):
            rate = (8000, 22050, 44100, 192000)[n % 4]
            samples = clip(hertz, rate, n)
            both = np.stack((samples, 0.5 * samples), 1) if n % 2 else samples
            soundfile.write(root / name / f"{n}.wav", both, rate, subtype=forms[n % 5])
    return root


def train(files, out, steps=60, shape=None, **data):
    config = regard.TrainConfig(steps=steps, eval_every=30, save_every=30, warm_up=5)
    with regard.settings(device="cpu", quiet=True):
        settings = SoundConfig(**SMALL | (shape or {}))
        return regard.train.sound(
            files, out=out, config=config, shape=settings, data=regard.DataConfig(**data)
        )


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("sound") / "run"
    train(folder, out, 120)
    return out


def test_it_learns_and_names_its_classes(run, folder):
    scores = regard.evaluate.sound(run / "final", folder)
    assert scores.accuracy > 0.9 and scores.count == 36
    config = json.loads((run / "final/config.json").read_text())
    assert config["id2label"] == {"0": "high", "1": "low", "2": "mid"}
    said = list(regard.predict(run / "final", folder / "low"))
    assert len(said) == 12 and sum(each.label == "low" for each in said) > 10


def test_transformers_hears_the_same(run, folder):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.ASTForAudioClassification.from_pretrained(run / "final").eval()
    extractor = transformers.ASTFeatureExtractor.from_pretrained(run / "final")
    for seconds in (0.3, 0.12, 0.6):  # as long, padded, cut
        path = folder.parent / "other.wav"
        soundfile.write(path, clip(700, 16000, 5, seconds), 16000)
        values = extractor(read_sound(path).numpy(), 16000, return_tensors="pt")["input_values"]
        kit, hearing, prepare = SOUND_RUN.open(run / "final")
        ((_, _, planes),) = read_clips([str(path)], hearing)
        x, _ = prepare(torch.from_numpy(planes)[None])
        assert torch.allclose(x[:, 0].mT, values, atol=1e-4)
        with torch.no_grad():
            expected = theirs(x[:, 0].mT).logits
        assert torch.allclose(kit.logits(x), expected, atol=2e-5 * float(expected.abs().max()))


def test_a_clip_is_the_same_alone_and_in_any_batch(run):
    kit, hearing, _ = SOUND_RUN.open(regard.load(run / "final", strict=True))
    x = torch.randn(4, 1, *hearing[1:], generator=torch.Generator().manual_seed(0))
    alone = torch.cat([kit.run_batch(Batch(row[None])) for row in x])
    assert torch.equal(kit.run_batch(Batch(x)), alone)


def test_frames_open_again(folder, tmp_path):
    train(folder, tmp_path / "run", 3, dict(reads="frames"), holdout=0.0)
    assert regard.load(tmp_path / "run/final").binding is None
    assert regard.evaluate.sound(tmp_path / "run/final", folder).count == 36


def test_it_begins_with_whisper_s_encoder(folder, tmp_path):
    """Which stays as it was where it is frozen; with other sounds the head alone is new."""
    base = Model.fresh(whisper(16, 2, 2, vocab=30, mels=20, seconds=1))
    Kit(base).save(tmp_path / "whisper")
    plain = dict(
        mels=128, patch=16, stride=10, dim=128, depth=4, heads=4, reads="frames"
    )  # what it has itself
    shape = plain | dict(freeze=("front", "encoder"))
    train(folder, tmp_path / "run", 3, shape, init=str(tmp_path / "whisper"))
    kit, hearing, _ = SOUND_RUN.open(tmp_path / "run/final")
    assert hearing == Hearing("whisper", 20, 30) and kit.model.decoder is None
    for name, weight in kit.model.named_parameters():
        assert name.startswith("head.") or torch.equal(weight, dict(base.named_parameters())[name])
    assert regard.evaluate.sound(tmp_path / "run/final", folder).count == 36
    train(folder, tmp_path / "again", 1, plain, init=str(tmp_path / "run/final"))


# Files --------------------------------------------------------------------------------------------


def test_classes_come_from_folders_names_and_lists(folder, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for digit in (3, 7):
        soundfile.write(flat / f"{digit}_ann_0.flac", clip(400), 16000)
    soundfile.write(flat / "plain.flac", clip(400), 16000)
    assert [label for _, label, _ in find_clips([str(flat)])] == ["3", "7", "flat"]
    assert [label for _, label, _ in find_clips([str(folder)])][::12] == ["high", "low", "mid"]
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        archive.add(flat, "")
        archive.add(folder / "low/0.wav", "deep/low/0.wav")
    archive = str(tmp_path / "all.tar.xz")
    labels = {name.rpartition(": ")[2]: label for name, label, _ in find_clips([archive])}
    assert labels["3_ann_0.flac"] == "3" and labels["deep/low/0.wav"] == "low"
    table = tmp_path / "list.tsv"
    table.write_text("file\tfold\tcategory\n7_ann_0.flac\t1\tseven\nflat/plain.flac\t1\tnone\n")
    both = {name.rpartition(": ")[2]: label for name, label, _ in find_clips([archive, str(table)])}
    assert both == {"flat/plain.flac": "none", "7_ann_0.flac": "seven"}
    (flat / "some.csv").write_text("file,label\n3_ann_0.flac,three\n")  # in the folder itself
    assert [clip[:2] for clip in find_clips([str(flat)])] == [("3_ann_0.flac", "three")]
    table.write_text("file\tfold\n7_ann_0.flac\t1\n")
    with pytest.raises(DataError, match="no column 'label'"):
        list(find_clips([str(table)]))


def test_what_has_no_sound_is_named_and_left_out(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        soundfile.write(tmp_path / name / "0.wav", clip(400), 16000)
    soundfile.write(tmp_path / "a/silent.wav", np.zeros(800), 16000)
    soundfile.write(tmp_path / "a/empty.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "a/short.wav", clip(400)[:5], 8000)
    (tmp_path / "a/broken.flac").write_bytes(b"fLaC no sound")
    whole = (folder / "low/0.wav").read_bytes()
    (tmp_path / "a/cut.wav").write_bytes(whole[: len(whole) // 2])
    said = []
    clips = list(leave_out(read_clips([str(tmp_path)], Hearing("kaldi", 20, 30)), said.append))
    assert len(clips) == 3 and all(planes.shape == (1, 20, 30) for _, _, planes in clips)
    assert all(np.isfinite(planes).all() for _, _, planes in clips)
    named = {name for name in ("silent", "empty", "broken", "cut") if f"/{name}." in " ".join(said)}
    assert len(named) == len(said) == 4 and any("silence; expected" in line for line in said)


def test_what_cannot_be_learnt_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="one class only"):
        train(folder / "low", tmp_path / "run")
    with pytest.raises(UsageError, match="32 × 6"):
        train(folder, tmp_path / "run", shape=dict(seconds=0.06))
    with pytest.raises(UsageError, match="a model that reads it"):
        SOUND_RUN.open(Kit(Model.fresh(llama(16, 1, 2, 2, 32, 20))))


def test_clips_say_how_much_is_read(folder, tmp_path):
    with regard.settings(quiet=True):
        settings = regard.train.sound(folder, out=tmp_path / "run", print_config=True)
    assert settings.values["seconds"] == pytest.approx(0.3)
    train(folder, tmp_path / "short", 1, dict(seconds=0.005, reads="frames"))
    assert SOUND_RUN.open(tmp_path / "short/final")[1].frames == 2


# Augmentation -------------------------------------------------------------------------------------


def augmentation(**own):
    off = dict(seconds=0.2, shift=0.0, stretch=0.0, pitch=0, mask_mels=0, mask_seconds=0.0)
    return SoundAugmentation(SoundConfig(**off | own))


def test_each_change_does_what_its_name_says():
    x = torch.arange(2 * 6 * 20.0).view(2, 1, 6, 20) + 1
    dice = torch.full((2, 12), 0.5)
    assert torch.equal(augmentation().change(x, dice, x), x)
    dice[0, 0], dice[1, 0] = 1.0, 0.0  # a later and an earlier part
    moved = augmentation(shift=0.03).change(x, dice, x)
    assert torch.equal(moved[0, 0, :, :17], x[0, 0, :, 3:]) and (moved[0, 0, 0, 17:] == 20).all()
    assert torch.equal(moved[1, 0], x[1, 0].roll(3, 1))  # what was last, such as padding, is first
    dice[:, 1] = 1.0
    higher = augmentation(pitch=2).change(x, dice, x)
    assert torch.equal(higher[:, :, :4], x[:, :, 2:])
    dice[:, 2] = 1.0
    faster = augmentation(stretch=0.5).change(x, dice, x)
    assert torch.equal(faster[0, 0, 0, :4], torch.tensor([1.0, 3, 4, 5]))  # places 0, 1.5, 3, 4.5


def test_masks_hide_a_band_and_a_stretch():
    x, dice = torch.ones(3, 1, 10, 40), torch.full((3, 12), 0.5)
    hidden = augmentation(seconds=0.4, mask_mels=8, mask_seconds=0.2).blank(x, dice) == 0
    assert torch.equal(hidden[0, 0].all(1), torch.arange(10).sub(5).add(0.5).abs() < 2)
    assert torch.equal(hidden[0, 0].all(0), torch.arange(40).sub(20).add(0.5).abs() < 5)
    own = replace(SoundConfig(), mixup=0.5)
    share = SoundAugmentation(own).mix(x, torch.rand(3, 12))[1]
    assert ((share > 0) & (share < 1)).all()


# Transcripts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Strings of one to three tones, two letters, with a list of what they say."""
    root, dice, rows = (
        tmp_path_factory.mktemp("said"),
        np.random.default_rng(0),
        ["file,transcript"],
    )
    for n in range(48):
        letters = dice.choice(["a", "b"], size=1 + n % 3)
        parts = [clip({"a": 500, "b": 2000}[letter], seconds=0.12) for letter in letters]
        gaps = [np.concatenate((part, dice.normal(0, 1e-3, 800))) for part in parts]
        soundfile.write(root / f"{n}.wav", np.concatenate(gaps), 16000)
        rows.append(f"{n}.wav,{''.join(letters)}")
    (root / "list.csv").write_text("\n".join(rows))
    return root / "list.csv"


SAY = dict(seconds=0.6, mels=20, dim=32, patch=16, stride=10, reads="frames", transcripts=True)


def test_transcripts_are_learnt_and_written(said, tmp_path):
    train(said, tmp_path / "run", 150, SAY | dict(rows=16, shift=0.02, mask_seconds=0.0))
    scores = regard.evaluate.sound(tmp_path / "run/final", said)
    assert scores.letter_error_rate < 0.1 and scores.count == 48 and scores.accuracy > 0.8
    wide = regard.evaluate.sound(tmp_path / "run/final", said, beam=8)
    assert wide.letter_error_rate < 0.1
    texts = tmp_path / "a.txt"
    texts.write_text("aaa\naa\na\n" * 20)
    with regard.settings(quiet=True):
        regard.train.ngram(texts, out=tmp_path / "lm", tokens="chars", order=2, lines=True)
    prefers = regard.evaluate.sound(
        tmp_path / "run/final", said, beam=8, lm=tmp_path / "lm", lm_weight=30.0
    )
    assert prefers.letter_error_rate > scores.letter_error_rate  # it hardly ever says b
    assert next(iter(regard.predict(tmp_path / "run/final", said))).label in ("a", "b")


def test_the_longest_text_is_heard_to_its_end_however_slowed(said, tmp_path):
    train(said, tmp_path / "run", 1, SAY | dict(seconds=None, stretch=0.5))
    longest = max(soundfile.info(file).duration for file in said.parent.glob("*.wav"))
    heard = regard.load(tmp_path / "run/final").model.config.front.length / 50
    assert 1.5 * longest <= heard < 1.5 * longest + 0.2


@pytest.mark.parametrize("transcripts", [True, False])
def test_letters_attend_by_distance_and_classes_by_place(transcripts):
    own = SoundConfig(**SAY | dict(transcripts=transcripts, heads=2, depth=1))
    model = Model.fresh(replace(SOUND_RUN.build(own, None, 3)[0], head=HeadConfig(3)))
    with torch.no_grad():
        model.front.positions.weight.zero_()  # where a row is is then unknown
    near, far = torch.ones(2, 1, 20, 60, dtype=torch.float64)
    sound = torch.randn(20, 8)
    near[..., 20:28], far[..., 4:12] = sound, sound
    with torch.no_grad():
        seen = [model.double()(Batch(x[None]))[0, 25] for x in (near, far)]
    assert torch.allclose(*seen, rtol=0, atol=1e-12) != transcripts


def test_what_no_transcript_can_be_is_refused(said, tmp_path):
    with pytest.raises(UsageError, match="transcripts with mixup"):
        train(said, tmp_path / "run", 1, SAY | dict(mixup=0.5))
    table = said.parent / "valid.csv"
    table.write_text("file,transcript\n0.wav,z\n")
    with pytest.raises(DataError, match="'z'"):
        train(said, tmp_path / "run", 1, SAY, valid=(str(table),))


@pytest.fixture
def wav2vec2(tmp_path):
    """A tiny random model of transformers, with letters."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3)
    sizes |= dict(conv_dim=(8, 8), conv_stride=(10, 32), conv_kernel=(20, 40), vocab_size=5)
    sizes |= dict(num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4)
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**sizes)).eval()
    model.save_pretrained(tmp_path / "base")
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path / "base")
    letters = json.dumps({"<pad>": 0, "<s>": 1, "|": 2, "a": 3, "b": 4})
    (tmp_path / "base/vocab.json").write_text(letters)
    return transformers, model, tmp_path / "base"


def test_transformers_wav2vec2_writes_the_same(wav2vec2, said):
    transformers, model, folder = wav2vec2
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    words = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json")
    found = list(SOUND_RUN.predict(regard.load(folder), [str(said)]))[:5]
    for n, (logs, _, prediction) in enumerate(found):
        samples = read_sound(said.parent / f"{n}.wav").numpy()
        values = extractor(samples, sampling_rate=16000, return_tensors="pt").input_values
        with torch.no_grad():
            expected = model(values).logits[0]
        assert torch.allclose(logs, expected.log_softmax(-1), atol=1e-4)
        assert prediction.label.strip() == words.decode(expected.argmax(-1)).replace("<s>", "")


def test_the_blank_may_be_any_letter_and_some_have_no_name(wav2vec2, said):
    """As in most models that were tuned by the recipe of transformers: [PAD] comes last."""
    _, _, folder = wav2vec2
    before = [p.label for *_, p in SOUND_RUN.predict(regard.load(folder), [str(said)])]
    tensors, order = load_file(folder / "model.safetensors"), [4, 2, 3, 0, 1]
    for name in ("lm_head.weight", "lm_head.bias"):
        tensors[name] = tensors[name][order].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"pad_token_id": 3}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({"b": 0, "|": 1, "a": 2, "[PAD]": 3}))
    after = [p.label for *_, p in SOUND_RUN.predict(regard.load(folder), [str(said)])]
    assert after == before and len(set("".join(after))) > 1
    place = folder / "preprocessor_config.json"  # in older folders it has no type
    place.write_text(place.read_text().replace("feature_extractor_type", "was"))
    assert [p.label for p in regard.predict(folder, said)] == before


def test_wav2vec2_is_fine_tuned(wav2vec2, said, tmp_path):
    transformers, _, folder = wav2vec2
    shape = SAY | dict(mels=128, dim=128, depth=4, heads=4)  # what it has itself
    train(said, tmp_path / "run", 3, shape, init=str(folder), holdout=0.0)
    final = tmp_path / "run/final"
    theirs = transformers.Wav2Vec2ForCTC.from_pretrained(final).eval()
    assert theirs.config.vocab_size == 3 and theirs.config.pad_token_id == 0
    x = torch.randn(1, 1, 4000, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(regard.load(final).logits(x), theirs(x[:, 0]).logits, atol=1e-5)
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(final)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "a", "b"]
    assert regard.evaluate.sound(final, said, beam=2).count == 48
    train(said, tmp_path / "again", 1, shape, init=str(final), holdout=0.0)


def test_letters_are_transcribed_with_their_times(said, tmp_path, run_regard):
    train(said, tmp_path / "run", 150, SAY | dict(rows=16, shift=0.02, mask_seconds=0.0))
    final, clips = tmp_path / "run/final", [str(said.parent / f"{n}.wav") for n in (2, 5)]
    predicted = {p.text.split("/")[-1]: p.label for p in regard.predict(final, said)}
    for path, each in zip(clips, regard.transcribe(clips, model=final), strict=True):
        assert each.text == predicted[path.split("/")[-1]] and len(each.text) > 1
        assert [word.word for word in each.words] == each.text.split()
        assert all(0 <= word.start < word.end <= 0.62 for word in each.words)
    code, _, _ = run_regard("transcribe", clips[0], "--model", final, "--out", tmp_path / "a.srt")
    assert code == 0 and (tmp_path / "a.srt").read_text().startswith("1\n00:00:00,")
    with pytest.raises(UsageError, match="a model that writes letters"):
        regard.transcribe(clips[0], model=final, language="fr")
    bad = list(regard.transcribe([tmp_path / "nowhere.wav", clips[0]], model=final))
    assert isinstance(bad[0], Failed) and bad[1].text


def test_windows_of_long_sound_say_what_the_whole_says(wav2vec2, monkeypatch):
    """But for the sound at their edges; no letter is said twice or left out."""
    _, _, folder = wav2vec2
    kit, (_, order) = regard.load(folder), SOUND_RUN.letters(regard.load(folder))
    monkeypatch.setattr(sound_classes, "hear", lambda x, hearing: x[None, None])
    x = torch.randn(40000, generator=torch.Generator().manual_seed(0))
    kit.model.encoder.blocks = torch.nn.ModuleList()  # convolutions see no further than an edge
    whole = SOUND_RUN.listen(kit, x, order)
    monkeypatch.setattr(sound_classes, "WINDOW", 16000)
    parts = SOUND_RUN.listen(kit, x, order)
    assert parts.shape == whole.shape
    normed = kit.model.front.norms[0]  # looks at all of a window
    assert isinstance(normed, torch.nn.GroupNorm)
    assert (parts.argmax(-1) == whole.argmax(-1)).float().mean() > 0.9


def test_samples_are_scaled_only_where_the_folder_asks(wav2vec2, said, tmp_path):
    transformers, model, folder = wav2vec2
    transformers.Wav2Vec2FeatureExtractor(do_normalize=False).save_pretrained(folder)
    logs, _, _ = next(SOUND_RUN.predict(regard.load(folder), [str(said)]))
    samples = read_sound(said.parent / "0.wav")
    with torch.no_grad():
        expected = model(samples[None]).logits[0].log_softmax(-1)
    assert torch.allclose(logs, expected, atol=1e-4)
    shape = SAY | dict(mels=128, dim=128, depth=4, heads=4)
    train(said, tmp_path / "run", 1, shape, init=str(folder), holdout=0.0)
    assert SOUND_RUN.open(tmp_path / "run/final")[1].form == "raw"


def test_samples_need_no_batch(wav2vec2):
    """Nor a channel: (S), (B, S) and (B, 1, S) are read alike."""
    kit = regard.load(wav2vec2[2])
    x = torch.randn(3, 4000, generator=torch.Generator().manual_seed(0))
    expected = kit.logits(x[:, None])
    assert torch.allclose(kit.logits(x), expected, atol=1e-6)
    assert torch.allclose(kit.logits(x[0]), expected[:1], atol=1e-5)
    with pytest.raises(DataError, match="reading samples"):
        kit.logits(x[None])  # three channels


def test_presets_of_frames(folder, tmp_path):
    with regard.settings(quiet=True):
        data = regard.DataConfig(preset="whisper-tiny")
        settings = regard.train.sound(folder, out=tmp_path / "a", data=data, print_config=True)
        values = [settings.values[name] for name in ("dim", "depth", "heads", "mels", "reads")]
        assert values == [384, 4, 6, 80, "frames"]
        with pytest.raises(UsageError, match="whisper-tiny, whisper-base"):
            data = regard.DataConfig(preset="nothing")
            regard.train.sound(folder, out=tmp_path / "a", data=data, print_config=True)


def test_what_cannot_be_heard_has_a_row(run, folder, tmp_path, run_regard):
    whole = (folder / "low/0.wav").read_bytes()
    for name, content in (("a", whole), ("b", b"no sound"), ("c", whole)):
        (tmp_path / f"{name}.wav").write_bytes(content)
    (tmp_path / "list.csv").write_text(
        "file,label\na.wav,low\nb.wav,low\ngone.wav,low\nc.wav,low\n"
    )
    code, out, err = run_regard("predict", run / "final", tmp_path / "list.csv", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 3 and ["error" in row for row in rows] == [False, True, False, True]
    assert "gone.wav, line 4 of" in rows[3]["error"] and "no such file" in rows[3]["error"]
    assert err.count("error: reading") == 2
    assert regard.evaluate.sound(run / "final", tmp_path / "list.csv").count == 2


def test_whisper_says_what_it_is_for(run, folder, tmp_path):
    config = whisper(16, 2, 2, vocab=30, mels=20, seconds=1)
    Kit(Model.fresh(config)).save(tmp_path / "whisper")
    with pytest.raises(UsageError, match=r"(?s)writes what is said.*transcribe"):
        list(regard.predict(tmp_path / "whisper", folder))
