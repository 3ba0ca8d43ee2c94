# The default, adaptive policy, held to the workload's largest batch; no delay is set. The server's own environment is
# PEERS_SHOAL_VENV; for resnet18 it needs torch and Pillow, as the peers do.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cat > "$RUN_DIR/shoal.toml" <<TOML
port = $PORT
management_port = $((PORT + 1))
metrics_port = $((PORT + 2))
[models.model]
path = "$here/model.py"
batching = {policy = "adaptive", batch_size = $MAX_BATCH}
TOML
exec "${PEERS_SHOAL_VENV:-$PEERS_VENV}/bin/shoal" serve --config "$RUN_DIR/shoal.toml"
