"""`lanewise explore`: a page in the browser, served on the loopback address, with rooms to look into.

`server` hands out the page's files and passes questions on, `answers` finds the function that answers one,
and each room has a file of its own with its questions. The page lies in `page/`: plain modules without a
build step.
"""
