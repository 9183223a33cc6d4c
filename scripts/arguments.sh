# Sourced by the other scripts, before they change directory. `arguments MOST "$@"` prints the comment at the script's
# head for --help, and refuses options and more than MOST arguments; `number NAME VALUE` refuses what isn't one.

arguments() {
  most=$1
  shift
  for argument in "$@"; do
    case $argument in
      -h | --help) sed -n '2,${/^#/!q;s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
      -*) refuse "there is no option $argument" ;;
    esac
  done
  [ $# -le "$most" ] || refuse "expected at most $most arguments, found $#: $*"
}

number() {
  case $2 in '' | *[!0-9]* | 0*) refuse "$1: expected a number from 1, found '$2'" ;; esac
}

refuse() {
  echo "${0##*/}: $1; --help says what there is" >&2
  exit 2
}
