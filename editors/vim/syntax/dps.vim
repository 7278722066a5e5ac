" Pipeline schedules (.dps). The words are those of grammar/schedule.l, in its order.
if exists('b:current_syntax')
  finish
endif

syntax keyword dpsKeyword schedule ranks microbatches param let require pipe stages stage microbatch version on of chunk
syntax keyword dpsKeyword at repeat if else overlap split from order auto squeeze
syntax keyword dpsFunction min max abs cost
syntax keyword dpsRank r
syntax match dpsNumber /\<\d\+\>/
syntax match dpsOperator /[-+*\/%<>=!?&|]/
syntax match dpsPasses /\<n\?\([FBIWU]\d*\)\+\>/
syntax match dpsTitle /\(\<schedule\s\+\)\@<=[A-Za-z0-9_-]\+/
syntax region dpsMessage start=/"/ end=/"/ oneline
syntax match dpsComment /#.*$/ contains=@Spell

highlight default link dpsKeyword Keyword
highlight default link dpsFunction Function
highlight default link dpsRank Identifier
highlight default link dpsNumber Number
highlight default link dpsOperator Operator
highlight default link dpsPasses Type
highlight default link dpsTitle Title
highlight default link dpsMessage String
highlight default link dpsComment Comment

let b:current_syntax = 'dps'
