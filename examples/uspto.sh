#!/usr/bin/env bash
# The protocol of the paper's section 6 from end to end, on a simulated corpus: no record of the
# USPTO is in it, and no number that comes out of it is a USPTO result.
#
#   examples/uspto.sh [N [FOLDER [SIZES [EFFORT]]]]
#   examples/uspto.sh 2000 simulated 100,200 balanced     # the defaults
#
# Needs pip install './studies[encoders]' from a clone. With the files of the register at hand, leave
# `simulate` out and name them instead of FOLDER/source. Every step that was interrupted goes on
# when its line is given again.
set -euo pipefail

n=${1:-2000}
folder=${2:-simulated}
sizes=${3:-100,200}
effort=${4:-balanced}
source=$folder/source
corpus=$folder/corpus
published=$folder/published

mkdir -p "$folder"
fairnepv uspto simulate --n "$n" --seed 0 --out "$source"
fairnepv uspto ingest "$source"/applications-*.xml --images "$source/images.zip" --out "$corpus"
fairnepv uspto split "$corpus" --validation 0.1 --test 0.1 --seed 0
fairnepv uspto features "$corpus"
fairnepv uspto run "$corpus" --k "$sizes" --effort "$effort" --name main
fairnepv uspto publish "$corpus" --run main --out "$published"
fairnepv uspto verify "$published" "$corpus"
