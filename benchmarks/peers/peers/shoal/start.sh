# The default, adaptive policy, held to the workload's largest batch; no delay is set. The server's own environment is
# PEERS_SHOAL_VENV; for resnet18 it needs torch and Pillow, as the peers do.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$WORKLOAD" = tensor ]; then # KServe v2: the repository that Triton gets, with the very same model
  mkdir -p "$RUN_DIR/repo/m/1"
  cp "$here/../triton/model.py" "$PEERS_COMMON/work.py" "$RUN_DIR/repo/m/1/"
  cat > "$RUN_DIR/repo/m/config.pbtxt" <<PB
name: "m"
backend: "python"
max_batch_size: $MAX_BATCH
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
dynamic_batching { max_queue_delay_microseconds: 0 }
instance_group [ { count: 1 kind: KIND_CPU } ]
PB
  exec "${PEERS_SHOAL_VENV:-$PEERS_VENV}/bin/shoal" tritonserver --model-repository="$RUN_DIR/repo" \
    --http-address=127.0.0.1 --grpc-address=127.0.0.1 --metrics-address=127.0.0.1 --http-port="$PORT" \
    --grpc-port=$((PORT + 1)) --metrics-port=$((PORT + 2)) --log-info=false
fi
cat > "$RUN_DIR/shoal.toml" <<TOML
port = $PORT
management_port = $((PORT + 1))
metrics_port = $((PORT + 2))
[models.model]
path = "$here/model.py"
batching = {policy = "adaptive", batch_size = $MAX_BATCH}
TOML
exec "${PEERS_SHOAL_VENV:-$PEERS_VENV}/bin/shoal" serve --config "$RUN_DIR/shoal.toml"
