# Prints a plugin with `command` after a line of a script. Without it, prints the number of the lines of the script.
{ match($0, /^ */) }
command { print }
inside && RLENGTH > indent {
  if (number == script && ++lines == 1) blanks = substr($0, 1, RLENGTH)
  if (command && number == script && lines == line) print blanks command
  next
}
{ inside = 0 }
/script: \|$/ { inside = 1; number++; indent = RLENGTH }
END { if (!command) print lines + 0 }
