#!/bin/bash
# French → English, sixth stage, from the weights in the box: fr-en-6.sh D OUT [DEVICE]
#
# D is the folder of sentence pairs, with wikitext-2-train.txt.xz. The model knew its rarer corpora by
# heart (BLEU of newstest 2008 to 2012: 50, of 2013: 33), so it learns from French that is drawn from
# English → French beside the pairs of before, with R-Drop. Each step leaves a folder in OUT: pairs,
# hinted, run, fr-en (int8). Drawing takes 27 minutes of two CPU cores, or two of a GPU, preparing
# three; the training was 8 minutes of one H200, 6,581 steps.
set -euo pipefail
cd "$(dirname "$0")/.."
D=$1 OUT=$2 DEVICE=${3:-cuda}
PYTHON=${PYTHON:-python}
PAIRS=$OUT/pairs HINTED=$OUT/hinted
used=(europarl-1of3 debian-mo tatoeba multi30k newstest2008-2012 more-{games,web,docs,numbers})
mkdir -p "$PAIRS"
for name in "${used[@]/#/train-}" dictionary dictionary-examples lemmas-fr; do
    ln -sf "$(realpath "$D/$name.tsv.xz")" "$PAIRS/"
done

draw() { $PYTHON recipes/back_translate.py en-fr "$PAIRS" "$@" --device "$DEVICE"; }
draw "$D"/train-newstest2008-2012.tsv.xz 4 "$D"/wikitext-2-train.txt.xz 1 &
draw "$D"/train-multi30k.tsv.xz 3 "$D"/train-tatoeba.tsv.xz 1 \
    "$D"/train-more-web.tsv.xz 0.5 "$D"/train-more-games.tsv.xz 0.5
wait $!

$PYTHON recipes/prepare.py "$PAIRS" "$HINTED" --counts regard/zoo/fr-en/words.tsv --processes "$(nproc)"

europarl=("$HINTED"/train-europarl-*) # half of them is enough
once=("$HINTED"/{train-drawn,train-debian-mo,train-tatoeba,train-more,made}-* "${europarl[@]:0:${#europarl[@]}/2}")
twice=("$HINTED"/{train-multi30k,dictionary-examples}-*)
often=("$HINTED"/train-newstest*-*)
files=("${once[@]}" "${twice[@]}" "${twice[@]}" "${often[@]}" "${often[@]}" "${often[@]}" "${often[@]}")
$PYTHON -m regard train seq2seq "${files[@]}" --holdout 0 --init fr-en --device "$DEVICE" \
    --config recipes/fr-en-6.toml --out "$OUT/run"
$PYTHON -m regard export int8 "$OUT/run/final" "$OUT/fr-en"
