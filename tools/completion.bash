# Completion of the command distag for bash.
_distag() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} index
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "run doctor version keygen checkpoint report ps why top help" -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
    doctor | version)
      COMPREPLY=($(compgen -W "--json" -- "$word"))
      return
      ;;
    checkpoint)
      if [ "$COMP_CWORD" -eq 2 ]; then
        COMPREPLY=($(compgen -W "show check merge" -- "$word"))
      elif [ "$COMP_CWORD" -eq 3 ]; then
        COMPREPLY=($(compgen -d -- "$word"))
      fi
      return
      ;;
    report)
      case $previous in
        -o | --merged) COMPREPLY=($(compgen -f -- "$word")) ;;
        *)
          if [[ $word == -* ]]; then
            COMPREPLY=($(compgen -W "--text -o --merged" -- "$word"))
          else
            COMPREPLY=($(compgen -d -- "$word"))
          fi
          ;;
      esac
      return
      ;;
    ps | why)
      case $previous in
        --longer) ;;
        *) COMPREPLY=($(compgen -W "--json --longer" -- "$word")) ;;
      esac
      return
      ;;
    keygen)
      if [ "$COMP_CWORD" -eq 2 ]; then
        COMPREPLY=($(compgen -W "--worker" -- "$word"))
      elif [ "$COMP_CWORD" -eq 4 ]; then
        COMPREPLY=($(compgen -d -- "$word"))
      fi
      return
      ;;
    run) ;;
    *) return ;;
  esac
  case $previous in
    -n | --restart | --grace) return ;;
    --trace)
      COMPREPLY=($(compgen -d -- "$word"))
      return
      ;;
  esac
  # The program is the first word that is neither an option nor the value of one.
  for ((index = 2; index < COMP_CWORD; ++index)); do
    case ${COMP_WORDS[index]} in
      -n | --restart | --grace | --trace) index=$((index + 1)) ;;
      --)
        index=$((index + 1))
        break
        ;;
      -*) ;;
      *) break ;;
    esac
  done
  if [ "$index" -lt "$COMP_CWORD" ]; then
    COMPREPLY=($(compgen -f -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "-n --restart --grace --trace --" -- "$word"))
  else
    COMPREPLY=($(compgen -c -- "$word"))
  fi
}
complete -o filenames -F _distag distag
