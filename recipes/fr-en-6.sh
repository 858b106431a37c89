#!/bin/bash
# French → English, sixth stage, from the weights in the box: fr-en-6.sh D OUT [DEVICE]
#
# D is the folder of sentence pairs, with wikitext-2-train.txt.xz. The model knew its rarer corpora by
# heart (BLEU of newstest 2008 to 2012: 50, of 2013: 33), so it learns from French that is drawn from
# English → French beside the pairs of before, and then what its own search finds is weighed by BLEU.
# Each step leaves a folder in OUT: pairs, hinted, run, trained (int8), fr-en (int8). One H200 with 16
# cores takes 4 minutes to draw, one to prepare, MINUTES (11) to train and RISK (4.5) to weigh.
set -euo pipefail
cd "$(dirname "$0")/.."
D=$1 OUT=$2 DEVICE=${3:-cuda}
PYTHON=${PYTHON:-python} SHARE=${SHARE:-1} MINUTES=${MINUTES:-11} RISK=${RISK:-4.5}
PAIRS=$OUT/pairs HINTED=$OUT/hinted
used=(europarl-1of3 debian-mo tatoeba multi30k newstest2008-2012 more-{games,web,docs,numbers})
mkdir -p "$PAIRS"
for name in "${used[@]/#/train-}" dictionary dictionary-examples lemmas-fr; do
    ln -sf "$(realpath "$D/$name.tsv.xz")" "$PAIRS/"
done

times() { $PYTHON -c "print($1 * $SHARE)"; }
draw() { $PYTHON recipes/back_translate.py en-fr "$PAIRS" "$@" --device "$DEVICE"; }
draw "$D"/train-europarl-1of3.tsv.xz "$(times 0.6)" "$D"/train-more-games.tsv.xz "$(times 0.7)" \
    "$D"/train-more-web.tsv.xz "$(times 0.7)" "$D"/train-more-docs.tsv.xz "$(times 0.4)" &
draw "$D"/train-newstest2008-2012.tsv.xz "$(times 6)" "$D"/train-multi30k.tsv.xz "$(times 4)" \
    "$D"/train-tatoeba.tsv.xz "$(times 1.5)" "$D"/wikitext-2-train.txt.xz "$(times 2)"
wait $!

$PYTHON recipes/prepare.py "$PAIRS" "$HINTED" --counts regard/zoo/fr-en/words.tsv --processes "$(nproc)"

cd "$HINTED"
once=(train-drawn-* train-europarl-* train-debian-mo-* train-tatoeba-* train-more-* made-*)
twice=(train-multi30k-* dictionary-examples-*)
often=(train-newstest*-*)
files=("${once[@]}" "${twice[@]}" "${twice[@]}" "${often[@]}" "${often[@]}" "${often[@]}" "${often[@]}")
cd - > /dev/null
$PYTHON -m regard train seq2seq "${files[@]/#/$HINTED/}" --holdout 0 --init fr-en --device "$DEVICE" \
    --config recipes/fr-en-6.toml --minutes "$MINUTES" --out "$OUT/run"
$PYTHON -m regard export int8 "$OUT/run/final" "$OUT/trained"

shares=() # of sentences, by kind: drawn ones are new to the model, the others keep hints in use
for kind in train-drawn-{multi30k,newstest,tatoeba}:3 train-drawn-{wikitext,europarl,more}:1 \
    dictionary-examples:2 train-{multi30k,tatoeba,newstest,europarl,more}:1; do
    for file in "$HINTED/${kind%:*}"*; do shares+=("$file" "${kind#*:}"); done
done
$PYTHON recipes/minimum_risk.py "$OUT/trained" "$OUT/fr-en" --train "${shares[@]}" \
    --dev "$D"/dev-*.tsv --device "$DEVICE" --minutes "$RISK"
