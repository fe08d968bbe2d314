#!/bin/sh
# preStop hook of Pulsar broker pods: lbd drains this broker before Kubernetes stops it (docs/rollout.md of lbd).
#
# It ends with 0 whatever lbd does, after LBD_PRE_STOP_SECONDS at the latest: it never keeps a pod from stopping.
# It needs a POSIX shell, curl, and grep, hostname, sed, sleep and tr. Each event is one line in the log of the pod.
#
#   LBD_URL               lbd's API; default http://lbd:8085
#   LBD_TOKEN_FILE        file with the token of that API; default /var/run/secrets/lbd/token
#   LBD_TOKEN             the token itself, instead of a file
#   LBD_CA_FILE           CA certificates for an API with https; default those that curl knows
#   LBD_BROKER            this broker, as lbd status lists it; default the advertised host and web port
#   LBD_PRE_STOP_SECONDS  the longest time to take, a whole number; default 240
#   LBD_OVERRIDE          reason for which the drain may pass a pause, quiet hours and limits (docs/drain.md); default none
#   LBD_POLL_SECONDS      pause between two requests; default 3
#   LBD_PRE_STOP_LOG      where lines are appended, stderr if that cannot be written; default /proc/1/fd/1
set -u

: "${LBD_URL:=http://lbd:8085}" "${LBD_TOKEN_FILE:=/var/run/secrets/lbd/token}" "${LBD_POLL_SECONDS:=3}"
: "${LBD_PRE_STOP_LOG:=/proc/1/fd/1}" "${LBD_PRE_STOP_SECONDS:=240}"
TRIES=10 # requests in a row that do not list a drain which was begun
newline='
'

token=
say() {
  line=$1
  [ -z "$token" ] || case $line in *"$token"*) line="a line that is not shown, because the token is in it" ;; esac
  line="lbd pre-stop: $(printf '%.400s' "$line" | tr '[:cntrl:]' ' ')"
  if (: >>"$LBD_PRE_STOP_LOG") 2>/dev/null; then
    printf '%s\n' "$line" >>"$LBD_PRE_STOP_LOG"
  else
    printf '%s\n' "$line" >&2
  fi
}

# The same, unless only numbers differ from the last time.
noted=
note() {
  kind=$(printf '%s' "$1" | tr -d '0-9')
  [ "$kind" = "$noted" ] || say "$1"
  noted=$kind
}

# Text for a string in double quotes, of JSON or of a curl configuration.
quoted() {
  printf '%s' "$1" | tr '[:cntrl:]' ' ' | sed 's/["\\]/\\&/g'
}

# field NAME: its value in the JSON of $item, at its first place, without quotes; empty where there is none.
field() {
  value=${item#*"\"$1\":"}
  case $value in
    "$item") value= ;;
    '"'*) value=${value#'"'} value=${value%%'"'*} ;;
    *) value=${value%%[,\}]*} ;;
  esac
}

# ask SECONDS PATH [OPTION...]: one request. Sets status, 000 where nothing was answered, answer, its beginning as item,
# and words, what a person is told if it does not help.
# The token goes to curl on its standard input: arguments can be seen in the list of processes.
ask() {
  seconds=$1 path=$2
  shift 2
  answer=$(
    exec 2>&1 # what outlives the deadline for some seconds holds nothing that Kubernetes waits for
    printf 'header = "Authorization: Bearer %s"\n' "$(quoted "$token")" |
      curl -q -sS -K - --noproxy '*' --limit-rate 1m -m "$seconds" -w '\n%{http_code}' \
        ${LBD_CA_FILE:+--cacert "$LBD_CA_FILE"} "$@" "$LBD_URL$path"
  )
  # shellcheck disable=SC2181 # "if answer=…" would be hard to read
  if [ $? -eq 0 ]; then
    status=${answer##*"$newline"} answer=${answer%"$newline"*}
    item=$(printf '%.2000s' "$answer")
    field detail
    words=${value:-"status $status, and nothing that lbd would say"}
  else
    status=000 words=${answer#*curl: } words=${words%%"$newline"*}
  fi
}

# Whether to ask again after an answer that did not help. What passes by itself: an lbd that is busy, restarts, or cannot
# be reached; the holds of lbd/reason.py; another broker's drain; an lbd that stands by while another one leads. An
# outage may last as long as somebody wants, so their number is not limited: only the time is.
again() {
  case $status in
    000 | 200 | 408 | 429 | 5??)
      note "no usable answer from lbd yet: $words"
      ;;
    409)
      case $words in
        *membership-changed:* | *leader-unreachable:* | *too-few-brokers:* | *not-leader:* | *' is at work;'* | *' are waiting already'*)
          note "lbd does not begin yet: $words"
          ;;
        *)
          say "lbd does not drain: $words; the broker stops as it is"
          return 1
          ;;
      esac
      ;;
    *)
      say "lbd does not drain (status $status): $words; the broker stops as it is"
      return 1
      ;;
  esac
}

# Sets item to the drain of this broker that is in force; empty if there is none.
look() {
  ask 5 /v1/drains
  case $status$answer in
    '200{"drains":['*) ;;
    *) return 1 ;;
  esac
  item=$(
    printf '%s\n' "$answer" | sed -e 's/{"drain":{/\
&/g' -e 's/"fill":/\
&/g' | grep -F "{\"drain\":{\"broker\":\"$broker\"," | sed 's/"left":\[.*\],"held":/"held":/'
  )
}

# Orders the drain; it ends by itself ten minutes later than this script, if lbd has not seen another start by then.
# One that is in force goes on with its own end and reason. begun is lbd's time of the order.
order() {
  told="\"owner\":\"pre-stop\",\"broker\":\"$broker\",\"timeout_seconds\":30"
  [ -n "$item" ] ||
    told="$told,\"reason\":\"Kubernetes stops the pod\",\"for_seconds\":$((LBD_PRE_STOP_SECONDS + 600))"
  [ -z "${LBD_OVERRIDE:-}" ] || told="$told,\"override\":\"$(quoted "$LBD_OVERRIDE")\""
  ask 35 /v1/drain -H 'Content-Type: application/json' --data "{$told}"
  [ "$status" = 200 ] || return 1
  field at
  case $value in '' | *[!0-9.]*) return 1 ;; esac
  begun=${value%%.*}
  field sentence
  say "$value"
}

# Whether the moves of the drain in $item have ended, those that were begun since; sentence says how.
ended() {
  field begun_at
  [ "${value%%.*}" -ge "$1" ] 2>/dev/null || return 1
  field ended_at
  case $value in '' | null) return 1 ;; esac
  field sentence
  sentence=$value
}

drain() {
  begun='' missing=0
  while :; do
    if ! look; then
      again || return
    elif [ -z "$begun" ]; then
      if [ -n "$item" ] && ! ended 0; then
        begun=0
        say "$broker is being drained already"
      else
        field override
        overridden=$value
        field rollout
        case $item,$overridden,$value in
          ,* | *,null,) order || again || return ;;
          *)
            say "the drain of $broker had ended before: $sentence"
            return
            ;;
        esac
      fi
    elif [ -z "$item" ]; then
      missing=$((missing + 1)) # an lbd that stands by may hear of a drain later than it begins
      if [ "$missing" -ge "$TRIES" ]; then
        say "the drain of $broker was ended; the broker stops as it is"
        return
      fi
    elif ended "$begun"; then
      say "$sentence"
      return
    else
      missing=0
      field held
      [ -z "$value" ] || note "the drain waits: $value"
    fi
    sleep "$LBD_POLL_SECONDS" >/dev/null 2>&1 || sleep 3 >/dev/null 2>&1
  done
}

work() {
  if ! command -v curl >/dev/null 2>&1; then
    say "there is no curl in this image; the broker stops as it is"
    return
  fi
  token=${LBD_TOKEN:-}
  [ -n "$token" ] || read -r token 2>/dev/null <"$LBD_TOKEN_FILE"
  if [ -z "$token" ]; then
    say "no token in $LBD_TOKEN_FILE; the broker stops as it is"
    return
  fi
  broker=${LBD_BROKER:-${advertisedAddress:-$(hostname -f 2>/dev/null)}:${webServicePort:-${webServicePortTls:-8080}}}
  case $broker in
    :* | *[!]A-Za-z0-9.:_[-]*)
      say "no name of this broker: set LBD_BROKER as lbd status lists it; the broker stops as it is"
      return
      ;;
  esac
  drain
}

case $LBD_PRE_STOP_SECONDS in
  *[!0-9]* | 0*)
    say "LBD_PRE_STOP_SECONDS is no whole number; 240 are taken"
    LBD_PRE_STOP_SECONDS=240
    ;;
esac
work &
worker=$!
{
  nap=
  trap '[ -z "$nap" ] || kill "$nap"; exit' TERM
  sleep "$LBD_PRE_STOP_SECONDS" &
  nap=$!
  wait "$nap" && kill "$worker"
} >/dev/null 2>&1 &
watch=$!
wait "$worker" 2>/dev/null
[ $? -ne 143 ] || say "$LBD_PRE_STOP_SECONDS s are over; the broker stops with what it still owns"
kill "$watch" 2>/dev/null
exit 0
