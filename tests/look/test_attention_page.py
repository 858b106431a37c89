"""The page of attention: whole, without network, true to its data, and alive in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from zlib import decompress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.look.attention_maps import add_effects, collect_maps, sparse_map, spell_words
from regard.look.page import pack_map
from regard.look.results import HeadMap
from regard.verbs import Call
from tests.look.test_page import Reader
from tests.properties.small_models import example, small_kit

NASTY = ["</script><script>alert(1)</script>", '"', "'", "<!--", "&amp;", "😀", "\n", "", " \u2028"]
WORDS = {n: f" <b>w{n}</b>" for n in range(61)}


def make(name: str, effects: bool = True):
    """A view and its page, whose tokens are as bad as tokens can be."""
    kit = small_kit(name)
    one = example(kit, len(NASTY), source=len(NASTY))
    names = ["text"] if one.target is None else ["source", "target"]
    batch = kit.batch(one.inputs[None], None if one.target is None else one.target[None])
    view = collect_maps(kit.hooked, batch, {side: NASTY for side in names})
    view = add_effects(kit.hooked, batch, view) if effects else view
    view = replace(spell_words(view, WORDS.__getitem__), heading="A <title> & more")
    object.__setattr__(view, "call", Call("regard.look.attention", {"text": "a <b>"}, []))
    return view, view.page()


def unpack(text, queries, width):
    """The inverse of `pack_map`."""
    data = decompress(b64decode(text))
    counts = np.frombuffer(data, "<u2", queries)
    links = int(counts.sum())
    gaps = np.frombuffer(data, "<u2", links, 2 * queries).astype(np.int64)
    starts = np.repeat(np.cumsum(counts.astype(np.int64)) - counts, counts)
    before = np.concatenate([[0], np.cumsum(gaps)])[starts]
    keys = (np.cumsum(gaps) - before).astype(np.uint16)
    weights = np.frombuffer(data, np.uint8, links, 2 * (queries + links))
    return HeadMap(counts, keys, weights, width)


def json_of(page: str) -> str:
    """The data as they stand in the page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return text


def data_of(page: str) -> dict:
    """What the script reads."""
    return json.loads(json_of(page))


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_nothing_is_fetched_and_one_script_runs(name):
    page = make(name)[1]
    read = Reader(page)
    assert read.open == [] and [tag for tag, _ in read.tags].count("script") == 2
    assert {tag for tag, _ in read.tags}.isdisjoint({"link", "img", "iframe", "object", "b"})
    assert not any({"src", "href", "style"} & set(attrs) for _, attrs in read.tags)
    code = page.replace(json_of(page), "")  # base64 may spell anything
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttp|eval\(", code)
    (policy,) = [a["content"] for t, a in read.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    style = page.partition("<style>")[2].partition("</style>")[0]
    for text in (script, style):
        hashed = re.findall(r"sha256-([^']*)", policy)
        assert sha256(text.encode()).digest() in [b64decode(one) for one in hashed]


def test_tokens_come_back_as_they_are():
    found = data_of(make("transformer")[1])
    assert found["sides"] == {"source": NASTY, "target": NASTY}
    assert all(word in WORDS.values() for word in found["words"])


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit", "transformer"])
def test_data_come_back(name):
    kit = small_kit(name)
    one = example(kit, 12, source=9)
    given_ = one.inputs[None], None if one.target is None else one.target[None]
    seen = kit.run(*given_, taps="*pattern")[1]
    size = next(iter(seen.values())).shape[2]
    sides = {"text": ["a"] * size} if one.target is None else {"source": ["a"] * 9}
    sides |= {} if one.target is None else {"target": ["b"] * 12}
    batch = kit.batch(*given_)
    view = add_effects(kit.hooked, batch, collect_maps(kit.hooked, batch, sides))
    found = data_of(spell_words(view, str).page())
    for stack, maps in zip(found["stacks"], view.maps, strict=True):
        queries, keys = (len(sides[side]) for side in stack["sides"])
        for tap, row in zip(maps.taps, stack["maps"], strict=True):
            for text, wanted in zip(row, seen[tap][0], strict=True):
                assert abs(unpack(text, queries, keys).dense() - wanted.numpy()).max() <= 1 / 255
        effects, given = view.effects[stack["name"]], found["effects"][stack["name"]]
        raw = decompress(b64decode(given["data"]))
        count = effects.changes.size
        assert np.array_equal(np.frombuffer(raw, "<f4", count), effects.changes.ravel())
        tokens = np.frombuffer(raw, "<i4", count * 5, 4 * count)
        assert [found["words"][n] for n in tokens] == [str(t) for t in effects.tokens.ravel()]
        shares = np.frombuffer(raw, "<u2", count * 5, 4 * count * 6) / 65535
        assert np.allclose(shares, effects.probabilities.ravel(), atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 700), st.integers(0, 99), st.sampled_from([None, 1, 5]))
def test_maps_travel(queries, keys, seed, most):
    noise = torch.randn(queries, keys, generator=torch.Generator().manual_seed(seed)) * 3
    noise[0] = 0  # all alike: of many keys nothing is left
    map = sparse_map(noise.softmax(-1), most)
    back = unpack(pack_map(map), queries, keys)
    for ours, theirs in zip(map[:3], back[:3], strict=True):
        assert np.array_equal(ours, theirs)


# In a browser -----------------------------------------------------------------------------------

HARNESS = """
<pre id="report"></pre><script>
const wait = () => new Promise((done) => setTimeout(done, 50));
const inked = () => { // is there a pixel of a link?
  const copy = document.createElement("canvas"), { width, height } = $("map");
  Object.assign(copy, { width, height });
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage($("map"), 0, 0);
  const [red, green] = colour("--from"), { data } = pen.getImageData(0, 0, width, height);
  for (let n = 0; n < data.length; n += 4)
    if (data[n + 3] > 60 && Math.abs(data[n] - red) + Math.abs(data[n + 1] - green) < 20)
      return true;
  return false;
};
(async () => {
  const found = { steps: [] };
  const step = (name) => found.steps.push([name, $("which").textContent, $("forecast").textContent,
    $("said").textContent, inked()]);
  await ready; await wait(); step("start");
  const painted = () => tiles.flat().filter(({ canvas }) => canvas.width === NARROW).length;
  for (let n = 0; n < 60 && !painted(); n++) await wait();  // a busy machine paints late
  found.painted = painted();
  tiles[1][2].see.click(); await wait(); step("see");
  tiles[0][1].off.click(); await wait(); step("off");
  found.off = [...document.querySelectorAll(".gone")].length;
  $("switch").click(); await wait(); step("on");
  spans[predicting][3].dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  await wait(); step("point");
  found.lit = spans[state.stack.sides[1]].map((s) => s.style.background);
  spans[predicting][2].click(); await wait(); step("hold");
  $("ways").children[1].click();
  spans[state.stack.sides[1]][1].dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  await wait(); step("to");
  for (const button of [...$("stacks").children]) { button.click(); await wait(); step("stack"); }
  $("zoom").children[0].click(); await wait();
  $("map").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" })); await wait();
  step("zoom");
  spans[predicting][2].focus();
  spans[predicting][2].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight",
    bubbles: true }));
  found.focus = document.activeElement === spans[predicting][3];
  $("stacks").children[2].click(); await wait();
  choose(0, 1); await wait();
  const point = (at) => spans[predicting][at].dispatchEvent(
    new MouseEvent("mouseover", { bubbles: true }));
  $("weights").children[0].click(); point(3); await wait(); step("sinkless");
  $("weights").children[0].click(); $("weights").children[1].click();
  point(3); await wait(); step("valued");
  spans[predicting].at(-1).click(); await wait();
  $("order").children[1].click(); await wait(); await wait();
  const offs = () => [...document.querySelectorAll(".off")];
  found.order = offs().map((off) => off.textContent);
  offs()[1].click(); await wait();
  offs()[0].click(); await wait(); step("other off");
  offs()[7].click(); await wait(); step("weak");
  $("grid").style.height = "5000px";
  scrollTo(0, 2500); await wait();
  found.panel = [scrollY, $("detail").getBoundingClientRect().top];
  found.fetched = performance.getEntriesByType("resource").length;
  $("report").textContent = JSON.stringify(found);
})().catch((error) => { $("report").textContent = JSON.stringify(String(error.stack)); });
</script></body>"""


def browser() -> str:
    """The path of Chromium or Chrome."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium, chromium-browser or google-chrome here: apt-get install chromium")


def browse(path, tmp_path) -> tuple[str, list[str]]:
    """The page after its script has run, and what it said on the console."""
    command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=8000", "--window-size=1400,1000"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_page_as_it_is_draws_without_a_word(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(make("transformer")[1], encoding="utf-8")
    shown, said = browse(path, tmp_path)
    assert said == []
    assert shown.count('class="tile') == 8 and "Predicted after" in shown
    assert shown.count('class="off"') == 8 and "alert(1)" in shown


def test_clicks_and_keys(tmp_path):
    view, page = make("transformer")
    path = tmp_path / "page.html"
    loose = re.sub(r"script-src [^;]*;", "script-src 'unsafe-inline';", page)
    harness = HARNESS.replace("NARROW", str(len(NASTY)))
    path.write_text(loose.replace("</body>", harness), encoding="utf-8")
    shown, said = browse(path, tmp_path)
    report = re.findall(r'<pre id="report">(.*?)</pre>', shown, re.S)[0]
    found = json.loads(html.unescape(report))
    assert said == [] and isinstance(found, dict), found
    assert found["fetched"] == 0 and found["off"] == 1 and found["painted"] == 8 and found["focus"]
    steps = {name: rest for name, *rest in found["steps"]}
    assert all(inked for *_, inked in steps.values())
    assert steps["see"][0] == "cross, block 1, head 2"
    assert steps["off"][0] == "cross, block 0, head 1" and "without cross 0.1" in steps["off"][1]
    assert f"{abs(view.effects['cross'].changes[0, 1, -1]):.2f}" in steps["off"][1]
    assert "without" not in steps["on"][1]
    links = view.maps[2].heads[0][1].links(3, 99)
    assert f"looks at “{NASTY[links[0][0]].strip()}" in steps["point"][2]
    assert [n for n, colour in enumerate(found["lit"]) if colour] == sorted(n for n, _ in links)
    assert "(2)" in steps["hold"][1] and "is looked at by" in steps["to"][2]
    assert steps["stack"][0] == "cross: mean of all heads"
    places = [(h, float(view.effects["cross"].changes[(*h, -1)])) for h in np.ndindex(2, 4)]
    order = [f"{abs(x):.2f}" for _, x in sorted(places, key=lambda one: -abs(one[1]))]
    assert [text.strip("+−") for text in found["order"]] == order
    kept = [key for key, _ in links if key]  # the first token is left out
    assert f"looks at “{NASTY[kept[0]].strip()}" in steps["sinkless"][2]
    cross = view.maps[2]
    valued = {key: w * float(cross.norms[0, 1, key]) for key, w in links}
    best = max(valued, key=valued.get)
    share = valued[best] / sum(valued.values())
    assert f"looks at “{NASTY[best].strip()}" in steps["valued"][2]
    assert f" {100 * share:.0f} %" in steps["valued"][2]
    one = max(places, key=lambda one: abs(one[1]))[0]
    assert f"without cross {one[0]}.{one[1]}" in steps["other off"][1]
    assert found["panel"][0] == 2500 and 0 <= found["panel"][1] < 100  # beside what is scrolled to


@torch.no_grad()
def test_norms_are_of_what_each_key_writes():
    kit = small_kit("llama")  # heads that share values
    batch = kit.batch(example(kit, 7, source=7).inputs[None])
    norms = collect_maps(kit.hooked, batch, {"text": ["a"] * 7}).maps[0].norms
    _, seen = kit.hooked.run(batch, "decoder.blocks.1.attn.v")
    (v,) = seen.values()
    attention = kit.model.decoder.blocks[1].attn
    weight = attention.o.weight.unflatten(1, (attention.heads, -1))
    shared = attention.heads // attention.groups
    for head in range(attention.heads):
        wanted = (v[0, :, head // shared] @ weight[:, head].T).norm(dim=-1)
        assert norms[1, head] == pytest.approx(wanted.numpy(), abs=1e-5)


def test_no_legend_for_what_is_not_there():
    assert (
        "switch"
        not in make("gpt2", effects=False)[1]
        .partition("</header>")[0]
        .rpartition('<p class="legend">')[2]
    )
