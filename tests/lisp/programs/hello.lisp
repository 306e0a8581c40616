; SPDX-License-Identifier: MIT
; Numbers, symbols, lists.
(print (list 1 2 3))
;=> (1 2 3)
