# The same server from its compiled build, which install.sh puts into PEERS_VENV; everything else is the plain one's.
if ! compgen -G "$PEERS_VENV/shoal__mypyc*" > /dev/null; then
  echo "there is no compiled build in $PEERS_VENV: bash install.sh shoal-compiled" >&2
  exit 2
fi
export PYTHONPATH=$PEERS_VENV
source "$(dirname "${BASH_SOURCE[0]}")/../shoal/start.sh"
