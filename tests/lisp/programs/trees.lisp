; SPDX-License-Identifier: MIT
; Binary trees, the mutator's bread and butter; old objects that come to refer to young ones.
(define (tree depth) (if (= depth 0) (cons nil nil) (cons (tree (- depth 1)) (tree (- depth 1)))))
(define (size tree) (if (null? tree) 0 (+ 1 (+ (size (car tree)) (size (cdr tree))))))
(define long-lived (tree 7))
(define (times n f) (if (= n 0) nil (begin (f) (times (- n 1) f))))
(define sum 0)
(times 10 (lambda () (set! sum (+ sum (size (tree 6))))))
(print (list sum (size long-lived)))
;=> (1270 255)

; A table of lists, all of it old by now, gets new elements.
(define table (make-vector 61 nil))
(define (insert! n)
  (let ((place (remainder (* n 7919) 61)))
    (vector-set! table place (cons n (vector-ref table place)))))
(define (from-to a b f) (if (< a b) (begin (f a) (from-to (+ a 1) b f)) nil))
(from-to 0 100 insert!)
(collect)
(from-to 100 400 insert!)
(define (length all n) (if (null? all) n (length (cdr all) (+ n 1))))
(define total 0)
(from-to 0 61 (lambda (i) (set! total (+ total (length (vector-ref table i) 0)))))
(print total)
;=> 400
(print (vector-ref table 7))
;=> (382 321 260 199 138 77 16)

; A queue: the tail of an old list is set to what is new.
(define head (list 0))
(define tail head)
(define (append! n)
  (set-cdr! tail (list n))
  (set! tail (cdr tail)))
(from-to 1 50 append!)
(collect)
(from-to 50 100 append!)
(define (add all sum) (if (null? all) sum (add (cdr all) (+ sum (car all)))))
(print (add head 0))
;=> 4950

; A vector that is larger than half a region, of young elements from the start.
(define large (make-vector 40000 (list 'x)))
(vector-set! large 39999 (list 'y))
(from-to 0 50 (lambda (n) (tree 3)))
(print (list (vector-ref large 0) (vector-ref large 39998) (vector-ref large 39999)))
;=> ((x) (x) (y))
