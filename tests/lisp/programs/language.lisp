; SPDX-License-Identifier: MIT
; Every form of the language, and every primitive.
(print '(a (b c) -7 () nil t))
;=> (a (b c) -7 nil nil t)
(print (list (+ 1 2) (- 1 2) (* 6 -7) (quotient 17 5) (remainder -17 5)))
;=> (3 -1 -42 3 -2)
(print (list (< 1 2) (< 2 1) (= 3 3) (= 3 4) (eq? 'a 'a) (eq? (cons 1 2) (cons 1 2))))
;=> (t nil t nil t nil)
(print (list (null? nil) (null? 1) (pair? '(1)) (pair? 1) (pair? nil) (number? 5) (number? 'x)))
;=> (t nil t nil nil t nil)
(print (if nil 1))
;=> nil
(print (cond ((< 2 1) 'less) ((= 2 1) 'equal) (else 'greater)))
;=> greater
(print (list (and) (and 1 2) (and nil 2) (or) (or nil 3) (or 4 5)))
;=> (t 2 nil nil 3 4)
(define x 5)
(set! x (+ x 1))
(print (let ((x 1) (y x)) (begin (set! x (+ x 10)) (list x y))))
;=> (11 6)
(define pair (cons 1 2))
(set-car! pair 'one)
(set-cdr! pair (list 'two))
(print pair)
;=> (one two)
(define v (make-vector 4 0))
(vector-set! v 1 '(deep))
(vector-set! v 3 v)
(print (list (vector-length v) (vector-ref v 1) (vector-ref v 2) (eq? v (vector-ref v 3))))
;=> (4 (deep) 0 t)
(print (lambda (x) x))
;=> function
(print (list 4611686018427387903 -4611686018427387904))
;=> (4611686018427387903 -4611686018427387904)

; Closures: what is captured, and what is captured and assigned.
(define (adder n) (lambda (m) (+ n m)))
(print ((adder 3) 4))
;=> 7
(define (counter)
  (let ((n 0))
    (list (lambda () (set! n (+ n 1))) (lambda () n))))
(define one (counter))
(define two (counter))
((car one))
((car one))
((car two))
(print (list ((car (cdr one))) ((car (cdr two)))))
;=> (2 1)
(define (thrice n) (lambda () (lambda () (set! n (* n 3)))))
(define triple ((thrice 5)))
(triple)
(print (triple))
;=> 45

; Primitives are values, too.
(define (map f all) (if (null? all) nil (cons (f (car all)) (map f (cdr all)))))
(print (map car '((1 2) (3 4))))
;=> (1 3)

; A call at the end of a function needs no stack.
(define (count n) (if (= n 0) 'done (count (- n 1))))
(print (count 300000))
;=> done
(define (even n) (if (= n 0) t (odd (- n 1))))
(define (odd n) (if (= n 0) nil (even (- n 1))))
(print (even 100001))
;=> nil
