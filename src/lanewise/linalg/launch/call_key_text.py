"""What identifies a call of `lw.matmul` for machine code: its key, in LLVM's language.

A key is a list of words that say all that the arguments of a call are, but for numbers and addresses. Its
first word is how many it has. The hash of a key says where to look for a call; whether it was found, the
comparison of all words does.
"""

KEY_TEXT = """
define internal i64 @mixed(i64 %seen, i64 %more) alwaysinline {
  %both = xor i64 %seen, %more
  %spread = mul i64 %both, -7046029254386353131
  %high = lshr i64 %spread, 29
  %mixed = xor i64 %spread, %high
  ret i64 %mixed
}

; Appends a word to a key; returns the hash of what was seen before and of it.
define internal i64 @put(ptr %key, i64 %seen, i64 %value) alwaysinline {
  %count = call i64 @word(ptr %key, i64 0)
  %at = getelementptr i64, ptr %key, i64 %count
  store i64 %value, ptr %at
  %more = add i64 %count, 1
  store i64 %more, ptr %key
  %hash = call i64 @mixed(i64 %seen, i64 %value)
  ret i64 %hash
}

; Whether two keys are the same, word for word.
define internal i1 @same_key(ptr %one, ptr %other) {
entry:
  %count = call i64 @word(ptr %one, i64 0)
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, %count
  br i1 %done, label %yes, label %compare
compare:
  %own = call i64 @word(ptr %one, i64 %n)
  %its = call i64 @word(ptr %other, i64 %n)
  %same = icmp eq i64 %own, %its
  br i1 %same, label %next, label %no
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Appends to a key what a DLTensor is, but for its numbers and its address: data 0, device 8, axes 16, type
; 20, shape 24, strides 32, offset 40. Returns the hash; 0: it has no strides, or too many axes. The number of
; axes is among the words, so that no two lists of tensors have the same ones.
define internal i64 @kind_of(ptr %tensor, ptr %key, i64 %seen) {
entry:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  %alignment = and i64 %first, 15
  %device = call i64 @word(ptr %tensor, i64 1)
  %type = call i64 @word(ptr %tensor, i64 2)
  %axes = trunc i64 %type to i32
  %count = zext i32 %axes to i64
  %shape = call ptr @address(ptr %tensor, i64 3)
  %strides = call ptr @address(ptr %tensor, i64 4)
  %unsaid = icmp eq ptr %strides, null
  %before = call i64 @word(ptr %key, i64 0)
  %two = shl i64 %count, 1
  %own = add i64 %two, TENSOR_WORDS
  %after = add i64 %before, %own
  %long = icmp ugt i64 %after, KEY_ROOM
  %not_taken = or i1 %unsaid, %long
  br i1 %not_taken, label %none, label %words
none:
  ret i64 0
words:
  %there = add i64 %alignment, GIVEN
  %h0 = call i64 @put(ptr %key, i64 %seen, i64 %there)
  %h1 = call i64 @put(ptr %key, i64 %h0, i64 %device)
  %h2 = call i64 @put(ptr %key, i64 %h1, i64 %type)
  br label %loop
loop:
  %n = phi i64 [ 0, %words ], [ %n1, %next ]
  %h = phi i64 [ %h2, %words ], [ %h4, %next ]
  %done = icmp uge i64 %n, %count
  br i1 %done, label %end, label %next
next:
  %size = call i64 @word(ptr %shape, i64 %n)
  %stride = call i64 @word(ptr %strides, i64 %n)
  %h3 = call i64 @put(ptr %key, i64 %h, i64 %size)
  %h4 = call i64 @put(ptr %key, i64 %h3, i64 %stride)
  %n1 = add i64 %n, 1
  br label %loop
end:
  ret i64 %h
}
"""
