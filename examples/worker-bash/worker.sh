#!/usr/bin/env bash
# A complete Rota worker in Bash, with curl and jq: runs `command` jobs, one at a time.
#
#   ROTA_URL=http://127.0.0.1:7070 ROTA_TOKEN=… ./worker.sh
#
# A lease counts from the sending of the call that renewed it; when it cannot be renewed in time, the
# job is ended here, because the server is about to give it to somebody else. SIGTERM drains.
set -uo pipefail

url=${ROTA_URL:-http://127.0.0.1:7070} name=${ROTA_NAME:-$(hostname)-bash} grace=5
draining= told= stopped= pid=
home=$(mktemp -d) && trap 'rm -rf "$home"' EXIT
trap 'draining=1; say drains' TERM

say() { printf '%s\n' "$*" >&2; }

# ask METHOD PATH SECONDS [curl options]: the answer in $body and its status in $status (000: none).
# In the background, because a signal is heard while waiting for a child, not while running one.
ask() {
  curl -sS --max-time "$3" -X "$1" "$url$2" -o "$home/body" -w '%{http_code}' \
    -H "Authorization: Bearer ${ROTA_TOKEN:-}" "${@:4}" >"$home/status" 2>"$home/curl" &
  local curl=$!
  until wait "$curl" || ! kill -0 "$curl" 2>/dev/null; do :; done
  status=$(cat "$home/status") body=$(cat "$home/body" 2>/dev/null)
  [[ $status == 2* ]]
}
post() { ask POST "$1" "$2" -H 'Content-Type: application/json' -d "$3"; }
read_json() { jq -r "$1" <<<"$body"; }
# Every failure but a 4xx is retried: every call of a worker may be repeated.
insist() { until post "$1" 10 "$2"; do [[ $status == 4* && $status != 429 ]] && return 1; sleep 1; done; }

register() {
  insist /workers/register "$(jq -n --arg n "$name" '{name: $n, capabilities: ["bash"], resources: {cpu: 1}}')" ||
    { say "refused: $body"; exit 1; }
  worker=$(read_json .worker_id) session=$(read_json .session) ttl=$(read_json '.lease_ttl | floor')
  wait_s=$(read_json .poll_wait_max) beat_s=$(read_json '.heartbeat_interval / 2')
  say "registered as $worker"
}

stop() { # stop WHY SIGNAL: the whole process group
  [[ $stopped ]] && return
  stopped=$1
  kill -"$2" -- "-$pid" 2>/dev/null
  (sleep "$grace"; kill -KILL -- "-$pid") >/dev/null 2>&1 &
  killer=$!
}

heartbeat() { # renews the lease of the running execution, and stops it if told to
  local sent=$SECONDS
  local spec='{session: $s, executions: [{execution_id: $e, fence: $f}]}'
  if post "/workers/$worker/heartbeat" 3 "$(jq -n --arg s "$session" --arg e "$id" --argjson f "$fence" "$spec")"; then
    renewed=$sent
    [[ $(read_json ".cancel | index(\"$id\")") != null ]] && stop cancelled TERM
    [[ $(read_json ".lost | index(\"$id\")") != null ]] && stop lost KILL
  elif [[ $status == 404 ]] || ((SECONDS - renewed >= ttl * 9 / 10)); then
    stop lost KILL
  fi
}

send_log() { # what was printed since the last time; a repeat adds nothing
  while (($(stat -c %s "$home/log") > sent_bytes)); do
    tail -c "+$((sent_bytes + 1))" "$home/log" | head -c 262144 >"$home/chunk"
    ask POST "/executions/$id/logs?offset=$sent_bytes&fence=$fence" 10 --data-binary "@$home/chunk" \
      -H 'Content-Type: application/octet-stream' || return
    sent_bytes=$(read_json .size)
  done
}

run() { # run ORDER
  local order=$1 code=0 outcome error=null result=null
  local argv=() vars=()
  id=$(jq -r .execution_id <<<"$order") fence=$(jq .fence <<<"$order") stopped= sent_bytes=0 pid=
  local started=$SECONDS timeout cwd
  timeout=$(jq '.timeout // 0 | ceil' <<<"$order") cwd=$(jq -r '.task.cwd // "."' <<<"$order")
  mapfile -d '' argv < <(jq -j '.task.argv // [] | map(. + "\u0000") | add // ""' <<<"$order")
  mapfile -d '' vars < <(jq -j '.task.env // {} | to_entries | map(.key + "=" + .value + "\u0000") | add // ""' <<<"$order")
  jq .payload <<<"$order" >"$home/payload.json"
  rm -f "$home/result.json"
  : >"$home/log"
  case $(jq -r '.task.kind // "function"' <<<"$order") in
    command)
      # A session of its own, so that all it starts can be ended with it.
      (cd "$cwd" && exec setsid env -i PATH="$PATH" HOME="$HOME" "${vars[@]}" \
        ROTA_JOB_ID="$(jq -r .job_id <<<"$order")" ROTA_EXECUTION_ID="$id" ROTA_FENCE="$fence" \
        ROTA_ATTEMPT="$(jq .attempt <<<"$order")" ROTA_WORKER="$name" \
        ROTA_PAYLOAD="$home/payload.json" ROTA_RESULT="$home/result.json" \
        "${argv[@]}") >"$home/log" 2>&1 </dev/null &
      pid=$!
      while kill -0 "$pid" 2>/dev/null; do
        [[ $draining && ! $told ]] && ask POST "/workers/$worker/drain" 3 && told=1
        heartbeat
        send_log
        ((timeout > 0 && SECONDS - started >= timeout)) && stop timed_out TERM
        # Sleeps until the job ends or the next heartbeat is due.
        timeout "$beat_s" tail --pid="$pid" -s 0.1 -f /dev/null
      done
      wait "$pid"; code=$?
      kill -KILL -- "-$pid" 2>/dev/null # kills processes that the job left
      [[ $stopped ]] && kill "$killer" 2>/dev/null
      send_log ;;
    noop) ;;
    *) code=69 ;;
  esac
  [[ $stopped == lost ]] && return
  if [[ $stopped ]]; then outcome=$stopped
  elif ((code == 0)); then outcome=succeeded; result=$(jq -c . "$home/result.json" 2>/dev/null || echo null)
  else outcome=failed; error="{\"message\": \"ended with $code\"}"; fi
  # 409: the lease was lost meanwhile; somebody else has the job now, and nothing was changed.
  insist "/executions/$id/complete" "$(jq -n --arg st "$outcome" --argjson f "$fence" --argjson c "$code" \
    --argjson r "${result:-null}" --argjson e "$error" \
    '{status: $st, fence: $f, exit_code: $c, result: $r, error: $e}')" || say "$body"
}

register
while [[ ! $draining ]]; do
  renewed=$SECONDS
  spec='{session: $s, max: 1, wait: $w, executions: []}'
  if post "/workers/$worker/lease" "$((ttl + 3))" "$(jq -n --arg s "$session" --argjson w "$wait_s" "$spec")"; then
    order=$(read_json '.executions[0] // empty | tojson')
    [[ $order ]] && run "$order"
  elif [[ $status == 404 ]]; then register
  elif [[ $status == 409 ]]; then say "a newer worker has this name: $body"; exit 1
  else sleep 1; fi
done
ask DELETE "/workers/$worker" 3
say drained
