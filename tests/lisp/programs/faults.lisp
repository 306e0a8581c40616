; SPDX-License-Identifier: MIT
; What goes wrong is a value where a program asks for it.
(print (list (try (car 1)) (try (cdr nil)) (try (set-car! 'a 1)) (try (set-cdr! (make-vector 1 0) 1))))
;=> (not-a-pair not-a-pair not-a-pair not-a-pair)
(print (list (try (+ 1 'a)) (try (< nil 1)) (try (quotient 1 nil)) (try (vector-ref '(1) 0))))
;=> (not-a-number not-a-number not-a-number not-a-vector)
(print (list (try (+ 4611686018427387903 1)) (try (- -4611686018427387904 1)) (try (* 4611686018427387903 2)) (try (quotient -4611686018427387904 -1))))
;=> (overflow overflow overflow overflow)
(print (list (try (quotient 1 0)) (try (remainder 1 0))))
;=> (division-by-zero division-by-zero)
(define v (make-vector 3 0))
(print (list (try (vector-ref v 3)) (try (vector-ref v -1)) (try (vector-set! v 4611686018427387903 1)) (try (make-vector -1 0))))
;=> (out-of-range out-of-range out-of-range out-of-range)
(print (list (try (vector-ref v 'a)) (try (make-vector nil 0))))
;=> (not-a-number not-a-number)
(print (list (try (1 2)) (try (nil)) (try ((lambda (x) x))) (try ((lambda () 1) 2)) (try unknown)))
;=> (not-a-function not-a-function wrong-number-of-arguments wrong-number-of-arguments unbound)

; No end to a recursion.
(define (deep n) (+ 1 (deep n)))
(print (try (deep 1)))
;=> too-deep
(define (deeper n) (+ 1 (try (deeper n))))
(print (try (deeper 1)))
;=> not-a-number

; A try within a try, and after one.
(print (try (list 1 (try (car 2)) (try (+ 1 (car (try unknown)))))))
;=> (1 not-a-pair not-a-pair)

; No end to a list; what is in use before is as it was.
(define kept (list 1 2 3))
(define (grow all) (grow (cons 1 all)))
(print (try (grow nil)))
;=> out-of-memory
(print (try (make-vector 100000000 0)))
;=> out-of-memory
(define (vectors n all) (if (= n 0) all (vectors (- n 1) (cons (make-vector 30000 n) all))))
(print (try (vectors 1000 nil)))
;=> out-of-memory
(print (vector-ref (car (vectors 10 nil)) 29999))
;=> 1
(print kept)
;=> (1 2 3)
