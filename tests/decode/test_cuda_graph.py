"""The fixed pace against the ordinary one: the same answers, and steps that need no host."""

from __future__ import annotations

import pytest
import torch

from regard.decode import cuda_graph
from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import ban
from regard.decode.cuda_graph import GraphLoop, rounded
from regard.decode.loop import run_search
from regard.decode.sampling import Ends, SampleConfig
from regard.errors import UsageError
from regard.model.batch import Batch
from tests.properties.small_models import WRITERS, small_kit
from tests.properties.test_decode import alone, make_rows, together
from tests.properties.threads import one_thread  # noqa: F401

HOW = {
    "greedy": None,
    "sample": SampleConfig(temperature=1.5, top_p=0.9, seed=3, first=5),
    "beam 1": BeamConfig(1, 1, length_penalty("none")),
    "beam 4": BeamConfig(4, 3),
    "groups": BeamConfig(4, 4, length_penalty("length", 1.0), groups=2, diversity=0.5),
}
LIMITS = [3 + n % 17 for n in range(20)]


@pytest.fixture
def turns(monkeypatch):
    """Sources of each step that ran at the fixed pace."""
    taken = []
    turn = GraphLoop.turn

    def counted(self, state, advance):
        taken.append(len(state.over))
        return turn(self, state, advance)

    monkeypatch.setattr(GraphLoop, "turn", counted)
    return taken


def some_ends(kit, batch):
    """Two tokens that end some of the rows early."""
    drawn = run_search(kit.model, batch, 5, SampleConfig(seed=1))
    return Ends({drawn[1][0].tokens[1], drawn[2][0].tokens[2]})


def assert_same(found, expected):
    assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in r] for r in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.finished for h in ours] == [h.finished for h in theirs]
        for part in ("logprob", "score"):
            values = [[getattr(h, part) for h in row] for row in (ours, theirs)]
            assert values[0] == pytest.approx(values[1], abs=1e-4)


# The same answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", WRITERS)
def test_same_answers(name, how, turns):
    """Padded on either side, with a limit of each row and ends on the way; then alone."""
    kit = small_kit(name)
    given = make_rows(kit)[: len(LIMITS)]
    for side in ("left", "right"):
        batch = together(given, side)
        ends = some_ends(kit, batch)
        plain = run_search(kit.model, batch, LIMITS, HOW[how], ends, driver="plain")
        assert not turns
        for _ in range(2):  # in new buffers, and in used ones
            assert_same(run_search(kit.model, batch, LIMITS, HOW[how], ends, driver="fixed"), plain)
        assert turns
        turns.clear()
    for row in (0, 7):
        own = HOW[how]
        if isinstance(own, SampleConfig):
            own = SampleConfig(**{**vars(own), "first": 5 + row})
        single = run_search(kit.model, alone(given[row]), LIMITS[row], own, ends, driver="fixed")[0]
        assert [h.tokens for h in single] == [h.tokens for h in plain[row]]


@pytest.mark.parametrize("how", ["greedy", "beam 4"])
def test_sources_leave_by_halves(how, turns):
    kit = small_kit("transformer")
    batch = together(make_rows(kit)[:20], "right")
    limits = [1] * 9 + [9] + [20] * 9 + [40]
    plain = run_search(kit.model, batch, limits, HOW[how], driver="plain")
    assert_same(run_search(kit.model, batch, limits, HOW[how], driver="fixed"), plain)
    assert turns == [20] * 16 + [10] * 8 + [1] * 16


def test_bfloat16_scores_are_those_of_one_pass():
    model = small_kit("gpt2").model.bfloat16()
    ids = torch.tensor([[5, 9, 2], [7, 7, 30]])
    for how in (None, BeamConfig(3, 1)):
        for start, row in zip(
            ids, run_search(model, Batch(ids), 30, how, driver="fixed"), strict=True
        ):
            whole = torch.cat((start, torch.tensor(row[0].tokens)))
            with torch.no_grad():
                log = model(Batch(whole[None]))[0, 2:-1].float().log_softmax(-1)
            total = float(log.gather(1, whole[3:, None]).sum())
            assert len(row[0].tokens) == 30 and row[0].logprob == pytest.approx(total, abs=0.5)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_listeners_hear_each_token_once(name):
    kit = small_kit(name)
    batch = together(make_rows(kit)[:6], "left")
    limits = [9, 2, 20, 9, 1, 9]

    def run(driver):
        heard = []
        ends = Ends({3}, lambda words: len(words) == 6, lambda *new: heard.append(new))
        return heard, run_search(kit.model, batch, limits, SampleConfig(), ends, driver=driver)

    heard, found = run("fixed")
    wanted, plain = run("plain")
    assert heard == wanted and len(heard) == sum(len(row[0].tokens) for row in found)
    assert_same(found, plain)
    assert max(len(row[0].tokens) for row in found) == 6


def test_a_listener_may_write_itself():
    """The buffers are in use then."""
    kit = small_kit("gpt2")
    batch = Batch(torch.randint(0, 61, (2, 5)))
    plain = run_search(kit.model, batch, 9, driver="plain")
    inner = []

    def watch(row, token):
        inner.append(run_search(kit.model, batch, 9, driver="fixed"))

    assert_same(run_search(kit.model, batch, 9, None, Ends(watch=watch), driver="fixed"), plain)
    assert_same(inner[-1], plain)


# What is kept between searches ------------------------------------------------------------------


def test_buffers_are_used_again_and_few():
    kit = small_kit("transformer")
    seen = set()
    for length in (3, 5, 8):  # one length of source after rounding
        batch = Batch(torch.randint(0, 61, (2, length)), torch.full((2, 1), 4))
        for seed in range(3):
            run_search(kit.model, batch, 20 + seed, SampleConfig(seed=seed), driver="fixed")
        run_search(
            kit.model,
            batch,
            25,
            BeamConfig(3, 1, length_penalty("gnmt", 0.1 * length)),
            driver="fixed",
        )
        seen.add(len(cuda_graph.GRAPHS[kit.model].records))
    assert seen == {2, 4}  # with and without padding


def test_the_oldest_buffers_make_room(monkeypatch):
    monkeypatch.setattr(cuda_graph, "KEPT", 2)
    kit = small_kit("gpt2")
    for rows in (1, 2, 3, 2):
        run_search(kit.model, Batch(torch.randint(0, 61, (rows, 4))), 3, driver="fixed")
    assert [key[0] for key in cuda_graph.GRAPHS[kit.model].records] == [3, 2]


def test_weights_that_change_are_seen():
    kit = small_kit("gpt2")
    model, batch = kit.model, Batch(torch.randint(0, 61, (2, 5)))

    def both():
        return [run_search(model, batch, 8, driver=driver) for driver in ("fixed", "plain")]

    assert_same(*both())
    first = cuda_graph.GRAPHS[model]
    with torch.no_grad():
        for parameter in model.parameters():  # as training and `.data` do: the address stays
            parameter.data.mul_(0.7).add_(0.05)
    assert_same(*both())
    assert cuda_graph.GRAPHS[model] is first
    model.decoder.blocks[0].residual = False
    assert_same(*both())
    assert cuda_graph.GRAPHS[model] is not first
    second = cuda_graph.GRAPHS[model]
    model.decoder.blocks[1].mlp.up = torch.nn.Linear(32, 128)
    assert_same(*both())
    assert cuda_graph.GRAPHS[model] is not second


def test_a_model_is_not_kept_alive():
    import gc

    before = len(cuda_graph.GRAPHS)
    kit = small_kit("gpt2")
    run_search(kit.model, Batch(torch.randint(0, 61, (2, 5))), 4, driver="fixed")
    assert len(cuda_graph.GRAPHS) == before + 1
    del kit
    gc.collect()
    assert len(cuda_graph.GRAPHS) <= before


def test_nothing_of_an_earlier_search_is_left():
    kit = small_kit("gpt2")
    batch, limits = Batch(torch.randint(0, 61, (4, 5))), [1, 20, 1, 1]
    expected = run_search(kit.model, batch, limits, driver="fixed")
    records = cuda_graph.GRAPHS[kit.model].records.values()
    assert [record.cache.batch for record in records] == [4, 1]
    for record in records:
        record.cache.held.fill_(torch.nan)
        record.cache.bias.zero_()
    assert_same(run_search(kit.model, batch, limits, driver="fixed"), expected)


# When it is not used ----------------------------------------------------------------------------


def test_what_must_run_as_python_does(turns):
    kit = small_kit("gpt2")
    model, batch = kit.model, Batch(torch.randint(0, 61, (2, 5)))
    kit.driver = "fixed"
    calls = []

    def seen(x):
        calls.append(x)
        return x

    kit.hooked.taps["decoder.blocks.1.attn.q"].fn = seen
    kit.search(batch, 4)
    kit.hooked.taps["decoder.blocks.1.attn.q"].fn = None
    assert len(calls) == 4
    hook = model.decoder.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    kit.search(batch, 4)
    hook.remove()
    assert len(calls) == 8
    run_search(model.train(), batch, 4, driver="fixed")
    model.eval()
    run_search(model, batch, 4, processes=[ban({3})], driver="fixed")
    run_search(model, batch, 4, SampleConfig(presence=1.0), driver="fixed")
    run_search(model, batch, 4, strict=True, driver="fixed")
    run_search(
        model, Batch(batch.inputs, documents=torch.zeros(2, 5).long()[:, :5]), 1, driver="fixed"
    )
    run_search(
        model, Batch(torch.randint(0, 61, (1, 90))), 6, driver="auto"
    )  # the CPU's own choice
    assert not turns
    kit.search(batch, 4)
    assert len(turns) == 4
    with pytest.raises(UsageError, match="driver = 'quick'"):
        run_search(model, batch, 4, driver="quick")


def test_a_search_to_the_end_of_a_position_table(turns):
    """One row is over long before; it must not run past the table while the other goes on."""
    kit = small_kit("gpt2")  # 96 positions
    rows = torch.randint(0, 61, (2, 90))
    mask = torch.ones(2, 90).bool()
    mask[1, 10:] = False
    for limits, ran in (([6, 6], 6), ([6, 80], 0)):
        plain = run_search(kit.model, Batch(rows, mask=mask), limits, driver="plain")
        assert_same(run_search(kit.model, Batch(rows, mask=mask), limits, driver="fixed"), plain)
        assert len(turns) == ran
        turns.clear()


# Fixed shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "how"),
    [("gpt2", "sample"), ("window", "greedy"), ("t5", "beam 4"), ("transformer", "groups")],
)
def test_a_step_is_one_graph_without_the_host(name, how, monkeypatch):
    """Traced as a whole, once for each span: a look at a value would break it or trace it anew."""
    kit = small_kit(name)
    batch = together(make_rows(kit)[:4], "left")
    graphs, bodies = [], {}
    body = GraphLoop.body

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    def traced(self, record, advance):
        span = record.cache.span
        if span not in bodies:
            compiled = torch.compile(body(self, record, advance), backend=count, fullgraph=True)
            bodies[span] = compiled
        return bodies[span]

    torch._dynamo.reset()
    plain = run_search(kit.model, batch, 20, HOW[how], driver="plain")
    monkeypatch.setattr(GraphLoop, "body", traced)
    monkeypatch.setattr(GraphLoop, "every", 99)  # all remain to the end
    assert_same(run_search(kit.model, batch, 20, HOW[how], driver="fixed"), plain)
    assert len(graphs) == len(bodies)
    torch._dynamo.reset()


def test_rounded_sizes():
    sizes = [rounded(n) for n in range(1, 5000)]
    assert all(size >= n and size % 8 == 0 for n, size in enumerate(sizes, 1))
    assert all(size <= n + max(64, n / 4) for n, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 32
