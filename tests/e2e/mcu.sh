# Small networks, fp32 and int8, on an emulated Cortex-M4 and Cortex-M3: what they compute is what the
# interpreter does.
set -eu
scripts/bench mcu --mlcc "$1/mlcc" --peers mlcc --models tiny_kws,tiny_ad --output "$2/mcu.json"
