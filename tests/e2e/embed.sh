# The digits network as firmware, run on an emulated Cortex-M4.
set -eu
sh examples/embed/run "$1/mlcc"
