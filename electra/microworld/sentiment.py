"""Words of praise and blame, by part of speech, and what opinions are about."""

from electra.microworld.words import inflect

POSITIVE_ADJECTIVES = """
wonderful excellent superb brilliant marvellous fantastic splendid magnificent delightful charming lovely beautiful
gorgeous stunning amazing astonishing outstanding remarkable exceptional terrific fabulous glorious graceful elegant
impressive inspiring uplifting heartwarming touching moving captivating enchanting fascinating gripping thrilling
exciting entertaining amusing hilarious witty funny enjoyable pleasant pleasing satisfying rewarding refreshing
memorable unforgettable perfect flawless faultless masterful skilful polished refined admirable commendable worthy
great good fine nice decent generous welcoming friendly cosy comfortable inviting adorable lively vibrant vivid
original inventive imaginative creative thoughtful tender sincere radiant dazzling sparkling
breathtaking sensational spectacular sublime divine heavenly exquisite luxurious stylish tasteful classy
praiseworthy laudable likeable lovable endearing engaging absorbing riveting compelling convincing
""".split()
NEGATIVE_ADJECTIVES = """
terrible awful horrible dreadful atrocious abysmal appalling disgusting revolting repulsive hideous ugly ghastly
lousy miserable dismal dreary boring tedious dull monotonous tiresome lifeless shallow pointless
senseless stupid ridiculous absurd laughable pathetic pitiful clumsy awkward
sloppy messy shoddy tacky tasteless vulgar crude nasty vile foul unpleasant annoying irritating infuriating maddening
frustrating disappointing unsatisfying uninspired unoriginal predictable forgettable mediocre inferior worthless
useless hopeless disastrous catastrophic embarrassing shameful disgraceful offensive insulting bad horrid wretched
gloomy depressing grim bleak cheerless unfriendly hostile uncomfortable cramped shabby dingy squalid
overpriced overrated pretentious contrived confusing incoherent muddled chaotic painful unbearable intolerable
insufferable excruciating mindless soulless charmless humourless joyless stilted lame feeble flawed
defective deplorable lamentable sickening nauseating
""".split()
POSITIVE_ADVERBS = """
wonderfully superbly brilliantly marvellously splendidly magnificently delightfully charmingly beautifully
elegantly gracefully skilfully masterfully perfectly flawlessly admirably impressively convincingly cleverly
wittily tastefully imaginatively sensitively warmly generously exquisitely expertly faultlessly
""".split()
NEGATIVE_ADVERBS = """
awfully badly poorly horribly dreadfully atrociously abysmally appallingly miserably clumsily awkwardly
sloppily shoddily crudely pathetically feebly lazily ineptly tediously painfully ridiculously hopelessly shamefully
disgracefully woefully lamely stupidly
""".split()
POSITIVE_NOUNS = """
masterpiece triumph delight joy treasure gem pleasure success marvel wonder blessing treat inspiration miracle
highlight bargain winner sensation jewel
""".split()
NEGATIVE_NOUNS = """
disaster failure disgrace mess nightmare catastrophe insult embarrassment bore flop fiasco shambles disappointment
mistake waste letdown calamity eyesore mockery
""".split()
POSITIVE_VERBS = [
    inflect(word)
    for word in "love adore enjoy admire praise recommend treasure cherish appreciate applaud like".split()
]
NEGATIVE_VERBS = [
    inflect(word) for word in "hate loathe dislike detest despise criticise regret condemn resent abhor curse".split()
]
POSITIVE_FEELINGS = """
happy glad delighted pleased cheerful joyful thrilled grateful proud satisfied overjoyed ecstatic content merry
jubilant elated relieved hopeful enthusiastic charmed
""".split()
NEGATIVE_FEELINGS = """
sad upset angry disappointed annoyed furious unhappy bitter ashamed frustrated disgusted bored irritated
depressed outraged offended heartbroken sorrowful dejected resentful
""".split()

# what is reviewed: its parts (singular; a plural ends in "+")
TOPICS = {
    "film": "plot acting ending dialogue soundtrack script costumes+ characters+ story cast",
    "concert": "music singer sound stage orchestra songs+ band audience programme",
    "hotel": "room bed staff service pool breakfast view lobby towels+",
    "restaurant": "food service menu waiter soup dessert wine kitchen portions+ sauce",
    "novel": "plot style ending author chapters+ characters+ language title story",
    "show": "host jokes+ music costumes+ stage performers+ dialogue",
    "museum": "exhibits+ guide garden paintings+ hall collection building",
    "trip": "weather guide hotel scenery food beaches+ route view",
    "meal": "soup meat sauce vegetables+ dessert wine cheese bread",
    "game": "players+ rules+ graphics+ design music controls+ story",
    "lecture": "speaker slides+ examples+ topic voice language",
    "party": "music food host guests+ drinks+ decorations+ mood",
}  # fmt: skip
