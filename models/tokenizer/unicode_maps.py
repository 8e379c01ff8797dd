"""Lower case and canonical base characters of Unicode 15, as llama.cpp's. Generated, do not edit.

Written and checked by the same file as `unicode_classes.py`, from unicode-data.cpp (unicode_map_lowercase,
unicode_ranges_nfd). LOWERCASE: base-36 numbers, in turn the gap since the last code point and what to add to this one.
BASES: in turn the gap before a range, its length, and the character that its code points decompose to first.
"""

LOWERCASE = """
1t w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 2u w 1 w 1
w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 2 w 1 w 1 w 1 w 1 w 1 w 1 w y 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 -5j 2 1 2 1 2 1 3 1 2 1
2 1 2 1 2 1 2 1 2 1 2 1 3 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1
2 -3d 1 1 2 1 2 1 4 5u 1 1 2 1 2 5q 1 1 2 5p 1 5p 1 1 3 27 1 5m 1 5n 1 1 2 5p 1 5r 2 5v 1 5t 1 1 4 5v 1 5x 2 5y 1 1
2 1 2 1 2 62 1 1 2 62 3 1 2 62 1 1 2 61 1 61 1 1 2 1 2 63 1 1 4 1 8 2 1 1 2 2 1 1 2 2 1 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 3 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 3 2 1 1 2 1 2 -2p 1 -1k 1 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 -3m 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 8 8bv 1 1 2 -4j 1 8bs 3 1 2 -5f 1 1x 1 1z 1
1 2 1 2 1 2 1 2 1 82 1 2 1 4 1 9 38 7 12 2 11 1 11 1 11 2 1s 2 1r 1 1r 2 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1
w 1 w 1 w 1 w 1 w 1 w 2 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 10 8 9 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 6 -1o
3 1 2 -7 1 1 3 -3m 1 -3m 1 -3m 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 28 1 w 1
w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1
w 1 w 1d 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 a 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 f 1 1 2 1 2 1 2 1 2 1 2 1 2 1 3 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 3 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1
1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1
1c 1 1c 1 1c 1 1c 28a 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls
1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1 5ls 1
5ls 1 5ls 1 5ls 2 5ls 6 5ls k3 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1
tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1
tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1
tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1
tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 tzk 1 8 1 8 1 8 1 8 1 8 1 8 1p7 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1
-2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk
1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 1
-2bk 1 -2bk 1 -2bk 1 -2bk 1 -2bk 3 -2bk 1 -2bk 1 -2bk 8x 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 a -5vj 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1
2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 a -8 1 -8 1 -8 1 -8 1 -8 1
-8 1 -8 1 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 b -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1
-8 1 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 c -8 2 -8 2 -8 2 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 p -8 1 -8 1 -8 1
-8 1 -8 1 -8 1 -8 1 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 9 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 1 -8 9 -8 1 -8 1
-22 1 -22 1 -9 c -2e 1 -2e 1 -2e 1 -2e 1 -9 c -8 1 -8 1 -2s 1 -2s d -8 1 -8 1 -34 1 -34 1 -7 c -3k 1 -3k 1 -3i 1 -3i
1 -9 8a -5st 4 -6gv 1 -6di 7 s 1a g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g 1 g k 1 mr q 1 q 1 q 1 q
1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1 q 1f5 1c 1 1c 1 1c 1 1c 1 1c 1
1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1
1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1 1c 1d 1 2 -8af 1 -2xy
1 -89z 3 1 2 1 2 1 2 -8bg 1 -8al 1 -8bj 1 -8bi 2 1 3 1 9 -8cf 1 -8cf 1 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1
2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1
2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 9 1 2 1 5 1 nym 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 k 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 3s 1 2 1 2 1 2 1 2 1 2 1 2 1 4 1 2
1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2
1 b 1 2 1 2 -r9g 1 1 2 1 2 1 2 1 2 1 5 1 2 -wmg 3 1 2 1 4 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 -wn8 1 -wnj 1 -wnf
1 -wn5 1 -wn8 2 -wlu 1 -wmi 1 -wlx 1 ps 1 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 -1c 1 -wn7 1 -raw 1 1 2 1 7 1 6 1 2 1 t 1
h7w w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w xy 14 1 14
1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1
14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 3t 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1
14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1 14 1
14 1 14 1 14 1 14 1 14 4d 13 1 13 1 13 1 13 1 13 1 13 1 13 1 13 1 13 1 13 1 13 2 13 1 13 1 13 1 13 1 13 1 13 1 13 1
13 1 13 1 13 1 13 1 13 1 13 1 13 1 13 2 13 1 13 1 13 1 13 1 13 1 13 1 13 2 13 1 13 1d7 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1
1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1
1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 1 1s 2cu w 1
w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1
w 1 w gw1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w 1 w
1 w 1 w 1 w 1 w 1 w o81 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1
y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y 1 y
"""

BASES = """
0 1 0 5b 6 1t 1 1 1v 0 4 1x 0 4 21 1 1 26 0 5 27 2 4 2d 0 1 2h 2 6 2p 1 1 2r 0 4 2t 0 4 2x 1 1 32 0 5 33 2 4 39 0 1
3d 1 1 3d 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1v 0 1 2r 0 1 1v 0 1 2r 0 1 1v 0 1 2r 0 1 1v 0 1 2r 0 1 1w 0
1 2s 2 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1z 0 1 2v 0 1 1z 0 1 2v 0 1 1z 0 1 2v
0 1 1z 0 1 2v 0 1 20 0 1 2w 2 1 21 0 1 2x 0 1 21 0 1 2x 0 1 21 0 1 2x 0 1 21 0 1 2x 0 1 21 3 1 22 0 1 2y 0 1 23 0 1
2z 1 1 24 0 1 30 0 1 24 0 1 30 0 1 24 0 1 30 4 1 26 0 1 32 0 1 26 0 1 32 0 1 26 0 1 32 3 1 27 0 1 33 0 1 27 0 1 33 0
1 27 0 1 33 2 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2c
0 1 38 0 1 2c 0 1 38 2 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2f 0 1
3b 0 1 2h 0 1 3d 0 1 2h 0 1 2i 0 1 3e 0 1 2i 0 1 3e 0 1 2i 0 1 3e x 1 27 0 1 33 d 1 2d 0 1 39 s 1 1t 0 1 2p 0 1 21 0
1 2x 0 1 27 0 1 33 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 1 1 1t 0 1 2p 0 1 1t 0 1 2p
0 1 5i 0 1 6e 2 1 1z 0 1 2v 0 1 23 0 1 2z 0 1 27 0 1 33 0 1 27 0 1 33 0 1 c7 0 1 ia 0 1 2y 3 1 1z 0 1 2v 2 1 26 0 1
32 0 1 1t 0 1 2p 0 1 5i 0 1 6e 0 1 60 0 1 6w 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 21 0 1 2x 0
1 21 0 1 2x 0 1 27 0 1 33 0 1 27 0 1 33 0 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2b 0 1 37 0 1 2c
0 1 38 2 1 20 0 1 2w 6 1 1t 0 1 2p 0 1 1x 0 1 2t 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 2h 0 1
3d 7g 1 lc 0 1 ld 1 1 lv 0 1 lk 1b 1 jd 9 1 1n 6 1 4o 0 1 pd 0 1 53 0 1 ph 0 1 pj 0 1 pl 1 1 pr 1 1 px 0 1 q1 0 1 qh
p 1 pl 0 1 px 0 1 q9 0 1 qd 0 1 qf 0 1 qh 0 1 qt p 1 qh 0 1 qt 0 1 qn 0 1 qt 0 1 qx 4 2 r6 17 2 t1 1 1 sz 3 1 sm 4 1
t6 0 1 t4 0 1 tf a 1 t4 v 1 u0 m 2 tx 1 1 tv 3 1 uu 4 1 u2 0 1 u0 0 1 ub n 1 vo 0 1 vp 21 1 t2 0 1 ty d 1 sw 0 1 ts
0 1 sw 0 1 ts 2 1 t1 0 1 tx 2 1 yg 0 1 yh 0 1 t2 0 1 ty 0 1 t3 0 1 tz 2 1 t4 0 1 u0 0 1 t4 0 1 u0 0 1 ta 0 1 u6 2 1
yw 0 1 yx 0 1 tp 0 1 ul 0 1 tf 0 1 ub 0 1 tf 0 1 ub 0 1 tf 0 1 ub 0 1 tj 0 1 uf 2 1 tn 0 1 uj 88 2 17r 0 1 18o 0 1
17r 0 1 18q 49 1 1cl 1 1 1c1 g 1 1ci gl 1 1t4 7 1 1tc 2 1 1tf z 1 1sl 0 1 1sm 0 1 1sn 0 1 1ss 0 1 1sx 0 1 1sy 0 1
1t7 0 1 1tb 2z 2 1xj f 1 1wh 0 1 1wi 1 1 1wv 2b 1 20i 2 1 20o y 1 1zq 0 1 1zr 0 1 1zw 2 1 20b 6h 1 287 2 2 287 f 1
275 0 1 276 1i 1 2aa 1h 1 2bq 0 1 2br 0 1 2bq 3f 1 2fa 3b 1 2in 6 2 2iu 1 2 2iu 3i 1 2me 0 1 2mf 0 1 2me 3x 1 2qh 1
3 2qh 9w 1 30i 9 1 30s 4 1 30x 4 1 312 4 1 317 c 1 30g 9 1 31t 1 1 31t 0 1 33m 1 1 33n 8 1 31t h 1 32q 9 1 330 4 1
335 4 1 33a 4 1 33f c 1 32o 30 1 36t 25b 1 5c5 1 1 5c7 1 1 5c9 1 1 5cb 1 1 5cd 3 1 5ch 14 1 5dm 1 1 5do 2 1 5dq 0 1
5dr 1 1 5du jg 1 1t 0 1 2p 0 1 1u 0 1 2q 0 1 1u 0 1 2q 0 1 1u 0 1 2q 0 1 1v 0 1 2r 0 1 1w 0 1 2s 0 1 1w 0 1 2s 0 1
1w 0 1 2s 0 1 1w 0 1 2s 0 1 1w 0 1 2s 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1y 0
1 2u 0 1 1z 0 1 2v 0 1 20 0 1 2w 0 1 20 0 1 2w 0 1 20 0 1 2w 0 1 20 0 1 2w 0 1 20 0 1 2w 0 1 21 0 1 2x 0 1 21 0 1 2x
0 1 23 0 1 2z 0 1 23 0 1 2z 0 1 23 0 1 2z 0 1 24 0 1 30 0 1 24 0 1 30 0 1 24 0 1 30 0 1 24 0 1 30 0 1 25 0 1 31 0 1
25 0 1 31 0 1 25 0 1 31 0 1 26 0 1 32 0 1 26 0 1 32 0 1 26 0 1 32 0 1 26 0 1 32 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0
1 33 0 1 27 0 1 33 0 1 28 0 1 34 0 1 28 0 1 34 0 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2a 0 1 36 0 1 2b 0 1 37
0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2b 0 1 37 0 1 2c 0 1 38 0 1 2c 0 1 38 0 1 2c 0 1 38 0 1 2c 0 1 38 0 1
2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2e 0 1 3a 0 1 2e 0 1 3a 0 1 2f 0 1 3b 0 1 2f 0
1 3b 0 1 2f 0 1 3b 0 1 2f 0 1 3b 0 1 2f 0 1 3b 0 1 2g 0 1 3c 0 1 2g 0 1 3c 0 1 2h 0 1 3d 0 1 2i 0 1 3e 0 1 2i 0 1 3e
0 1 2i 0 1 3e 0 1 2w 0 1 38 0 1 3b 0 1 3d 1 1 an 4 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1
2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1t 0 1 2p 0 1 1x 0 1 2t 0
1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 1x 0 1 2t 0 1 21 0 1 2x 0 1 21
0 1 2x 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1
33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 27 0 1 33 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0
1 2d 0 1 39 0 1 2d 0 1 39 0 1 2d 0 1 39 0 1 2h 0 1 3d 0 1 2h 0 1 3d 0 1 2h 0 1 3d 0 1 2h 0 1 3d 6 8 q9 0 8 pd 0 6 qd
2 6 ph 2 8 qf 0 8 pj 0 8 qh 0 8 pl 0 6 qn 2 6 pr 2 8 qt 1 1 px 1 1 px 1 1 px 1 1 px 0 8 qx 0 8 q1 0 2 q9 0 2 qd 0 2
qf 0 2 qh 0 2 qn 0 2 qt 0 2 qx 2 8 q9 0 8 pd 0 8 qf 0 8 pj 0 8 qx 0 8 q1 0 5 q9 1 2 q9 0 5 pd 1 1 qh 2 1 4o 0 3 qf 1
2 qf 0 2 ph 0 3 pj 0 3 69r 0 4 qh 2 2 qh 0 4 pl 1 3 6bi 0 4 qt 0 2 qp 0 2 qt 0 4 px 0 1 pt 0 2 4o 0 1 2o 2 3 qx 1 2
qx 0 2 pr 0 3 q1 0 1 50 2 1 6bm 0 1 6bn 84 1 q1 3 1 23 0 1 1t 32 1 6mo 0 1 6mq i 1 6ms u 1 6og 0 1 6ok 0 1 6oi 1g 1
6pv 4 1 6q0 2 1 6q3 n 1 6qr 1 1 6qt q 1 6rg 2 1 6rn 2 1 6rp 1 1 6rs m 1 1p 1 1 6sh a 1 6rx 0 1 1o 0 1 1q 0 1 6sk 0 1
6sl 2 1 6sy 0 1 6sz 2 1 6t2 0 1 6t3 6 1 6t6 0 1 6t7 2 1 6te 0 1 6tf 2 1 6ti 0 1 6tj y 1 6ua 0 1 6ug 0 1 6uh 0 1 6uj
1c 1 6t8 0 1 6t9 0 1 6tt 0 1 6tu 6 1 6uq 0 1 6ur 0 1 6us 0 1 6ut 1n 1 9hk 0 1 9hl 1ip 1 8gt 12n 1 9jf 1 1 9jh 1 1
9jj 1 1 9jl 1 1 9jn 1 1 9jp 1 1 9jr 1 1 9jt 1 1 9jv 1 1 9jx 1 1 9jz 1 1 9k1 2 1 9k4 1 1 9k6 1 1 9k8 6 2 9kf 1 2 9ki
1 2 9kl 1 2 9ko 1 2 9kr m 1 9ja 9 1 9lp d 1 9m3 1 1 9m5 1 1 9m7 1 1 9m9 1 1 9mb 1 1 9md 1 1 9mf 1 1 9mh 1 1 9mj 1 1
9ml 1 1 9mn 1 1 9mp 2 1 9ms 1 1 9mu 1 1 9mw 6 2 9n3 1 2 9n6 1 2 9n9 1 2 9nc 1 2 9nf m 1 9ly 2 1 9nz 0 1 9o0 0 1 9o1
0 1 9o2 3 1 9od oap gc 3cw 0 gc 3cx 0 gc 3cy 0 gc 3cz 0 gc 3d0 0 gc 3d1 0 gc 3d2 0 gc 3d3 0 gc 3d4 0 gc 3d5 0 gc 3d6
0 gc 3d7 0 gc 3d8 0 gc 3d9 0 gc 3da 0 gc 3db 0 gc 3dc 0 gc 3dd 0 gc 3de 6l8 1 rpk 0 1 kc4 0 1 s7e 0 1 rt4 0 1 lw1 0
1 fg2 0 1 gkl 0 2 vj0 0 1 hn5 0 1 ssx 0 1 gw7 0 1 hmw 0 1 jcm 0 1 ne1 0 1 p6t 0 1 qin 0 1 qt6 0 1 r20 0 1 sjz 0 1
kxu 0 1 ljv 0 1 mah 0 1 mvy 0 1 q4d 0 1 sq2 0 1 uep 0 1 fia 0 1 ghh 0 1 l50 0 1 mjf 0 1 qi5 0 1 v8e 0 1 ifk 0 1 m3v
0 1 qfh 0 1 r50 0 1 jih 0 1 pnc 0 1 qvz 0 1 iq2 0 1 kd3 0 1 lm2 0 1 mpo 0 1 slq 0 1 fpi 0 1 g53 0 1 gda 0 1 jwk 0 1
l3n 0 1 mj4 0 1 nhj 0 1 pa9 0 1 qh2 0 1 qjg 0 1 s1b 0 1 tv6 0 1 upb 0 1 v7e 0 1 nt8 0 1 nzz 0 1 otc 0 1 q15 0 1 t1g
0 1 vb3 0 1 rfa 0 1 hjz 0 1 iro 0 1 okg 0 1 pdq 0 1 mle 0 1 nuy 0 1 rsy 0 1 ttj 0 1 hjs 0 1 i8y 0 1 kyb 0 1 lp6 0 1
lxr 0 1 oq7 0 1 oxj 0 1 tor 0 1 gcy 0 1 pe3 0 1 g64 0 1 g5o 0 1 o4c 0 1 ou6 0 1 q29 0 1 tpx 0 1 rk0 0 1 jin 0 1 kxu
0 1 rge 0 1 fg9 0 1 i5j 0 1 iz6 0 1 mtj 0 1 n74 0 1 gev 0 1 nwb 0 1 fr3 0 1 iw9 0 1 ff1 0 1 lho 0 1 k1k 0 1 opu 0 1
gjn 0 1 hge 0 1 ni9 0 1 q4p 0 1 re2 0 1 la2 0 1 sds 0 1 lfs 0 1 jjy 0 1 put 0 1 jog 0 1 n6t 0 1 fji 0 1 g2x 0 1 g5l
0 1 kn5 0 1 oo7 0 1 prj 0 1 rf6 0 1 ssv 0 1 gdx 0 1 gn6 0 1 ho3 0 1 ir0 0 1 k3p 0 1 m4e 0 1 nxm 0 1 tkd 0 1 ui2 0 1
vbr 0 1 vda 0 1 gbf 0 1 kau 0 1 l87 0 1 sbm 0 1 ino 0 1 j9s 0 1 jcw 0 1 jve 0 1 lyb 0 1 mdl 0 1 n0p 0 1 o22 0 1 ovo
0 1 pdb 0 1 s9y 0 1 q9a 0 1 sgz 0 1 t3e 0 1 g7r 0 1 gbn 0 1 gql 0 1 ma0 0 1 r0i 0 1 re2 0 1 iq1 0 1 iyd 0 1 jnf 0 1
l9q 0 1 oji 0 1 mt1 0 1 fl0 0 1 h6h 0 1 i5j 0 1 iii 0 1 izg 0 1 muq 0 1 mzt 0 1 p7e 0 1 pc6 0 1 svo 0 1 tti 0 1 tvs
0 1 u1k 0 1 fpn 0 1 o1a 0 1 ss4 0 1 trs 0 1 j4x 0 1 fie 0 1 fyy 0 1 i5q 0 1 i7z 0 1 k2h 0 1 kxu 0 1 mha 0 1 ncy 0 1
q9o 0 1 sjg 0 1 vil 0 1 k94 0 1 tny 0 1 gax 0 1 kfv 0 1 kj7 0 1 lkx 0 1 luk 0 1 mx5 0 1 n6h 0 1 nsb 0 1 opc 0 1 u3i
0 1 g31 0 1 je6 0 1 tq0 0 1 fu3 0 1 ie1 0 1 lpm 0 1 sa2 0 1 ivf 0 1 j7o 0 1 kk7 0 1 mtj 0 1 tqe 0 1 g89 0 1 glr 0 1
i91 0 1 k5v 0 1 kem 0 1 ko8 0 1 lid 0 1 mx2 0 1 naa 0 1 p6h 0 1 r0v 0 1 r1d 0 1 sss 0 1 tsy 0 1 gfz 0 1 lve 0 1 gm5
0 1 mhc 0 1 n14 0 1 qgq 0 1 tr7 0 1 uvr 0 1 vbz 0 1 kgn 0 1 lor 0 1 pns 0 1 o97 0 1 obk 0 1 olu 0 1 mo0 0 1 m8p 0 1
riw 0 1 fk0 0 1 px2 0 1 g8q 0 1 g7b 0 1 ip2 0 1 jir 0 1 onq 0 1 i2t 0 1 ljy 0 1 kac 0 1 saj 0 1 qx8 0 1 tot 0 1 r63
0 1 iqb 0 1 g1s 0 1 gxs 2 1 hga 1 1 k8k 2 1 g66 0 1 mqy 0 1 ngq 0 1 ny4 0 1 nz2 0 1 nz9 0 1 o0f 0 1 tw6 0 1 on2 0 1
p8d 1 1 qhe 1 1 rg8 2 1 shk 0 1 sn1 3 1 u7j 0 1 u7w 0 1 u94 0 1 v5g 0 1 sm6 0 1 trr 0 1 fqm 0 1 fzb 0 1 g25 0 1 gcp
0 1 gdg 0 1 ggh 0 1 gwt 0 1 gzq 0 1 h2g 0 1 hfk 0 1 hig 0 1 i90 0 1 i9a 0 1 j2s 0 1 j8o 0 1 j9q 0 1 jci 0 1 k0f 0 1
k4i 0 1 k9d 0 1 kn9 0 1 lmf 0 1 lqy 0 1 lya 0 1 mem 0 1 mjv 0 1 mxu 0 1 ntd 0 1 ny6 0 1 nyh 0 1 nyg 0 1 nyo 0 1 nyu
0 1 nz1 0 1 o0d 0 1 o0e 0 1 o5c 0 1 o75 0 1 og0 0 1 ovo 0 1 ow9 0 1 oxt 0 1 p6a 0 1 pad 0 1 pnx 0 2 prt 0 1 q53 0 1
r2o 0 1 r6e 0 1 rgh 0 1 ri1 0 1 rtf 0 1 ruw 0 1 sdy 0 1 shk 0 1 tsz 0 1 u0v 0 1 u2j 0 1 j1x 0 1 36cu 0 1 pp4 2 1 ffq
0 1 g51 0 1 g2w 0 1 fpc 0 1 g1x 0 1 g3k 0 1 gcn 0 1 ge2 0 1 gwt 0 1 gut 0 1 gwp 0 1 gyq 0 1 hga 0 1 hir 0 1 hms 0 1
hn8 0 1 huq 0 1 i08 0 1 iqa 0 1 iqh 0 1 iuh 0 1 iwd 0 1 j4o 0 1 j7y 0 1 j60 0 1 j9q 0 1 j8g 0 1 jci 0 1 jec 0 1 jpg
0 1 jrw 0 1 jte 0 1 k0m 0 1 k8k 0 1 kd3 0 1 kd7 0 1 keu 0 1 l89 0 1 la2 0 1 lkx 0 1 lwb 0 1 lvv 0 1 lya 0 1 m5a 0 1
mem 0 1 nmv 0 1 mk5 0 1 mnj 0 1 mqy 0 1 n01 0 1 n46 0 1 n5n 0 1 nbx 0 1 nbz 0 1 ngq 0 1 nh7 0 1 nhw 0 1 nka 0 1 nk0
0 1 nv0 0 1 o8h 0 1 og0 0 1 ol7 0 1 orf 0 1 ovo 0 1 p4u 0 1 pad 0 1 pxu 0 1 q27 0 1 qrd 0 1 r41 0 1 r5y 0 1 r6e 0 1
ren 0 1 rg8 0 1 rez 0 1 rgh 0 1 rge 0 1 rfx 0 1 ri1 0 1 rka 0 1 ruw 0 1 sag 0 1 sj6 0 1 srd 0 1 sxi 0 1 tq4 0 1 tsz
0 1 tw6 0 1 tzv 0 1 u0v 0 1 u17 0 1 u2j 0 1 umq 0 1 vj0 0 1 313e 0 1 3138 0 1 33dh 0 1 brx 0 1 cns 0 1 cop 0 1 39e1
0 1 3bgw 0 1 3i6r 0 1 vgj 0 1 vim 1v 1 15l 1 1 16a a 4 161 0 3 15c 0 1 15d 0 1 15e 0 1 15f 0 1 15g 0 1 15h 0 1 15i 1
1 15k 0 1 15l 0 1 15m 0 1 15n 0 1 15o 1 1 15q 1 1 15s 0 1 15t 1 1 15v 0 1 15w 1 1 15y 0 1 15z 0 1 160 0 1 161 0 1
162 0 1 15h 0 1 15d 0 1 15n 0 1 15w 47f 1 1huh 1 1 1huj e 1 1hut 3m 1 1hyp 0 1 1hyq ez 2 1idj a6 2 1int 1 1 1int 6z
1 1iuw 0 1 1iux os 1 1jjp 10dh 1 2jx3 0 6 2jx4 2e 1 2jzt 0 1 2jzu 0 1 2jzt 0 1 2jzu 0 1 2jzt 0 1 2jzu 1m4f 1 fgd 0 1
fg8 0 1 fgh 0 1 2tcy 0 1 fog 0 1 fqm 0 1 fqz 0 1 fsy 0 1 fwa 0 1 fx5 0 1 fzb 0 1 fyn 0 1 ae6 0 1 2ud6 0 1 g25 0 1
g2c 0 1 g2s 0 1 g3b 0 1 2u58 0 1 aex 0 1 g2v 0 1 g3x 0 1 2u6j 0 1 g47 0 1 g4k 0 1 fkc 0 1 g4s 0 1 g51 0 1 3ly7 0 1
g6t 0 1 g77 0 1 afz 0 1 g8r 0 1 g92 0 1 gaa 0 1 gaf 0 1 ahh 0 1 gcn 0 1 gcp 0 1 gdg 0 1 ge2 0 1 ged 0 1 gee 0 1 gev
0 1 gg9 0 1 ggh 0 1 ggq 0 1 ghf 0 1 ghp 0 3 ghr 0 1 2v58 0 1 m7k 0 1 gju 0 1 gkf 0 1 2vdv 0 1 gkr 0 1 gkx 0 1 gli 0
1 gpq 0 1 gmw 0 1 gnc 0 1 go8 0 1 gpu 0 1 gs6 0 1 gsw 0 1 gur 0 1 gv7 0 2 gw4 0 1 gwp 0 1 gx7 0 1 gxf 0 1 gxu 0 1
h7a 0 1 gzq 0 1 h7b 0 1 h1t 0 1 h2s 0 1 g7b 0 1 hke 0 1 hce 0 1 hdg 0 1 he5 0 1 haj 0 1 hf6 0 1 hf5 0 1 hik 0 1 2x9g
0 1 hki 0 1 hkn 0 1 hl2 0 1 hlm 0 1 hlu 0 1 hnm 0 1 2xm0 0 1 2xnu 0 1 hrg 0 1 hsr 0 1 ht3 0 1 hqw 0 1 huu 0 1 aum 0
1 av0 0 1 hzc 0 2 i0u 0 1 2y88 0 1 i4j 0 1 i54 0 1 i5j 0 1 i5v 0 1 2yhk 0 1 i67 0 1 i6e 0 1 itv 0 1 i76 0 1 ayp 0 1
i8w 0 1 i9a 0 1 ibk 0 1 ia5 0 1 2z1g 0 1 if7 0 1 2z1i 0 1 ige 0 1 igb 0 1 igs 0 1 ijl 0 1 ijm 0 1 b3j 0 1 ikd 0 1
ilk 0 1 im5 0 1 ind 0 1 b4y 0 1 2zr7 0 1 b5o 0 1 ipc 0 1 ipf 0 1 ipi 0 1 iq2 0 1 3pg2 0 1 iri 0 2 3035 0 1 poh 0 2
isi 0 1 b7r 0 1 335k 0 1 3cgq 0 1 iua 0 1 iuj 0 1 b8j 0 1 ivu 0 1 ix9 0 1 ixj 0 1 iyh 0 1 j29 0 1 bay 0 1 ba4 0 1
j2s 0 1 30t0 0 1 j47 0 1 j7s 0 1 j7w 0 1 j7y 0 1 j7w 0 1 j96 0 1 j9q 0 1 jaq 0 1 jac 0 1 jan 0 1 jby 0 1 jci 0 1 jcm
0 1 jdc 0 1 jdn 0 1 jfh 0 1 jht 0 1 jis 0 1 jm8 0 1 31n0 0 1 jlp 0 1 jjw 0 1 jmw 0 1 jnn 0 1 jqc 0 1 31td 0 1 js2 0
1 jph 0 1 jop 0 1 bhq 0 1 ju1 0 1 jum 0 1 jvh 0 1 juf 0 1 bjg 0 1 k0f 0 1 k18 0 1 32mi 0 1 k4j 0 1 kc8 0 1 k7d 0 1
bo9 0 1 k9d 0 1 bns 0 1 bms 0 1 g42 0 1 g45 0 1 kcg 0 1 k9o 0 1 pf1 0 1 deh 0 1 kd3 0 1 kd7 0 1 kdd 0 1 kf2 0 1 ker
0 1 33cz 0 1 bpl 0 1 kje 0 1 kg5 0 1 klu 0 1 kn9 0 1 33hp 0 1 kni 0 1 kkf 0 1 kr8 0 1 brx 0 1 ksi 0 1 kv7 0 1 kx6 0
1 l2g 0 1 33xf 0 1 l3v 0 1 bvc 0 1 l5t 0 1 34br 0 1 l78 0 1 bwu 0 1 l82 0 1 l9b 0 1 la2 0 1 la3 0 1 34p9 0 1 2yvf 0
1 34sa 0 1 le6 0 1 354s 0 1 lhb 0 1 lhp 0 1 lev 0 1 ljq 0 1 lku 0 1 lmf 0 1 lkx 0 1 lm1 0 1 lmg 0 1 lmt 0 1 357i 0 1
lkk 0 1 lrj 0 1 lta 0 1 c37 0 1 lvv 0 1 lvr 0 1 35jl 0 1 lq1 0 1 m0e 0 1 35ni 0 1 35ou 0 1 m2u 0 1 m61 0 1 m5a 0 1
m57 0 1 c5y 0 1 m6i 0 1 m7x 0 1 m7r 0 1 m99 0 1 2u5h 0 1 mdh 0 1 368z 0 1 mfw 0 1 36i3 0 1 mjs 0 1 mk5 0 1 mkw 0 1
36yw 0 1 mm8 0 1 mmt 0 1 3779 0 1 37dg 0 1 mt6 0 1 mtn 0 1 cdo 0 1 mud 0 2 ce0 0 1 myv 0 1 mzg 0 1 n01 0 1 n0l 0 1
n2i 0 1 cgr 0 1 n50 0 1 386u 0 1 n5q 0 1 389e 0 1 n74 0 1 2zrz 0 1 nbk 0 1 38v5 0 1 38vs 0 1 38zo 0 1 cn0 0 1 cnc 0
1 nhw 0 1 394j 0 1 394i 0 1 395l 0 1 396b 0 1 nj2 0 2 nj3 0 1 nka 0 1 cop 0 1 nm3 0 1 cp2 0 1 cra 0 1 39r1 0 1 nri 0
1 nt8 0 1 nv0 0 1 ctf 0 1 3a5i 0 1 nyu 0 1 3a8q 0 1 3a9x 0 1 o0f 0 1 o2z 0 1 cvj 0 1 o5c 0 1 o5m 0 1 o5r 0 1 3at8 0
2 3b1j 0 1 oa6 0 1 d1e 0 1 3b8r 0 1 og6 0 1 og9 0 1 d2f 0 1 3beo 0 1 onm 0 1 d5s 0 1 oo8 0 1 oo3 0 1 oow 0 1 3c06 0
1 orn 0 1 d8h 0 1 ouf 0 1 ow2 0 1 oxx 0 1 d9w 0 1 3ciw 0 1 3cjr 0 1 dax 0 1 3cnt 0 1 p6i 0 1 3cqm 0 1 p79 0 1 pa2 0
1 pad 0 1 3d22 0 1 3d43 0 1 pcw 0 1 3d7s 0 1 pdc 0 1 33a7 0 1 ded 0 1 pf6 0 1 phf 0 1 dfv 0 1 pj2 0 1 hx1 0 1 3dlz 0
1 3dmd 0 1 33bn 0 1 33bw 0 1 poh 0 1 pok 0 1 sda 0 1 dij 0 1 psh 0 1 psb 0 1 pst 0 1 gc3 0 1 ptd 0 1 ptf 0 1 ptp 0 1
puu 0 1 3ebg 0 1 put 0 1 pwd 0 1 pyb 0 1 q0d 0 1 pwj 0 1 q0t 0 1 q1z 0 1 q53 0 1 pxv 0 1 q16 0 1 q18 0 1 q1o 0 1
3eie 0 1 3eqz 0 1 3emt 0 1 dnv 0 1 q9d 0 1 q9f 0 1 qae 0 1 3g0a 0 1 qck 0 1 3f3g 0 1 dp9 0 1 dpd 0 1 3f75 0 1 3ff6 0
1 dpn 0 1 qj4 0 1 qjg 0 1 qjr 0 1 qjt 0 1 qll 0 1 qko 0 1 qoe 0 1 qn6 0 1 qrd 0 1 qp4 0 1 qqz 0 1 qrq 0 1 dsn 0 1
qu9 0 1 qv5 0 1 dtl 0 1 qxs 0 1 qxv 0 1 3giv 0 1 r13 0 1 r1a 0 1 dv9 0 1 r22 0 1 aez 0 1 3gz2 0 1 3h46 0 1 dz2 0 1
dzb 0 1 rds 0 1 rfx 0 1 rka 0 1 rpx 0 1 3hrc 0 1 rsb 0 1 rsx 0 1 rvf 0 1 rxz 0 1 3i9b 0 1 2upw 0 1 s0b 0 1 rzw 0 1
s1c 0 1 2uvy 0 1 s7o 0 1 sag 0 1 3jki 0 1 3jl9 0 1 sk4 0 1 smp 0 1 snl 0 1 3ju6 0 1 snv 0 1 svs 0 1 t07 0 1 t08 0 1
sxo 0 1 t89 0 1 t91 0 1 3ksa 0 1 tjf 0 1 ej9 0 1 tkn 0 1 3l2v 0 1 eli 0 1 ts3 0 1 iia 0 1 tur 0 1 3ltx 0 1 3lzu 0 1
epa 0 1 epi 0 1 u00 0 1 3mdm 0 1 er6 0 1 3mhi 0 2 u17 0 1 u21 0 1 3mpi 0 1 u76 0 1 eur 0 1 u95 0 1 ucn 0 1 ude 0 1
uf2 0 1 ez2 0 1 3nsg 0 1 umq 0 1 uv4 0 1 v0d 0 1 f66 0 1 f71 0 1 v3b 0 1 3owe 0 1 f7c 0 1 3oxx 0 1 3p5a 0 1 3p8x 0 1
vcr 0 1 f9y 0 1 veh 0 1 vem 0 1 vet 0 1 vf3 0 1 vfa 0 1 vgb 0 1 3pxc
"""
