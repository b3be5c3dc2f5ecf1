#!/usr/bin/env bash
# Runs OpenAI's Python and JavaScript clients against `ingot serve`: tests/clients/check.py and check.mjs, with
# unmodified clients except for the base URL, over plain HTTP and TLS; then the examples of docs/serving with SmolLM2
# (tools/doc_examples.py). Called by `./run oracles`. Both clients are installed from their package indices into
# build/clients. CLIENTS_MODEL serves another model than the one made here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ingot=${INGOT_EXECUTABLE:-$PWD/build/release/ingot}
folder=build/clients
python_client=openai==3.54.0
javascript_client=openai@6.49.0
server=

INGOT_HOME=$(mktemp -d) # not the user's models and rates
export INGOT_HOME

stop_server() { [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true; }
trap 'stop_server; rm -rf "$INGOT_HOME"' EXIT

if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$python_client $javascript_client" ]; then
  rm -rf "$folder"
  mkdir -p "$folder/javascript"
  python3 -m venv "$folder/python"
  "$folder/python/bin/pip" install --quiet "$python_client"
  (cd "$folder/javascript" && npm install --silent --no-audit --no-fund "$javascript_client")
  echo "$python_client $javascript_client" >"$folder/wanted"
fi
cp tests/clients/check.mjs "$folder/javascript/"

model=${CLIENTS_MODEL-}
if [ -z "$model" ]; then
  model=$folder/run/tiny/model
  [ -d "$model" ] || "$ingot" pretrain recipes/tiny.yaml steps=1 schedule.warmup_steps=0 run_dir="$folder/run" >"$folder/pretrain.log" 2>&1 || { cat "$folder/pretrain.log" >&2; exit 1; }
fi

# A new key, of which the file has only the digest.
key=$(openssl rand -hex 24)
printf 'sha256:%s clients\n' "$(printf %s "$key" | sha256sum | cut -d' ' -f1)" >"$folder/keys"

# run_checks NAME [OPTION...]: starts the server, runs both clients, stops the server and checks its exit code.
run_checks() {
  local name=$1 url='' status=0
  shift
  : >"$folder/$name.log" # of a run before
  "$ingot" serve --model "$model" --name org/model --host 127.0.0.1 --port 0 --sequences 8 --api-key-file "$folder/keys" \
    --access-log "$folder/$name-access.jsonl" "$@" 2>"$folder/$name.log" &
  server=$!
  until url=$(grep -oE 'https?://127\.0\.0\.1:[0-9]+' "$folder/$name.log"); do
    kill -0 "$server" || { cat "$folder/$name.log" >&2; exit 1; }
    sleep 0.1
  done
  "$folder/python/bin/python" tests/clients/check.py "$url/v1" "$key" org/model
  node "$folder/javascript/check.mjs" "$url/v1" "$key" org/model
  kill -TERM "$server"
  wait "$server" || status=$?
  server=
  [ "$status" = 130 ] || { echo "error: the server ended with $status" >&2; cat "$folder/$name.log" >&2; exit 1; }
  if grep -qF -e "$key" -e "Say something" "$folder/$name.log" "$folder/$name-access.jsonl"; then
    echo "error: a key or a prompt is in the log" >&2
    exit 1
  fi
}

run_checks plain
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$folder/tls.key" -out "$folder/tls.pem" 2>/dev/null
export SSL_CERT_FILE=$PWD/$folder/tls.pem NODE_EXTRA_CA_CERTS=$PWD/$folder/tls.pem
run_checks tls --tls-cert "$folder/tls.pem" --tls-key "$folder/tls.key"
unset SSL_CERT_FILE NODE_EXTRA_CA_CERTS
PYTHON=$folder/python/bin/python tools/llamacpp.sh --model
python3 tools/doc_examples.py "$(find build/llamacpp -maxdepth 1 -name 'SmolLM2*.gguf' | head -n 1)"
echo "clients: all checks agree"
